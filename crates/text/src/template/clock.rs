//! strftime_now: the caller's local time, formatted as Python's datetime.now().strftime does in the C locale.

use super::error::{failed, refused, Result};
use chrono::NaiveDate;
use std::fmt::Write;

/// Broken-down local time. Part of the ABI (`PdTextClock` in ffi.h).
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Clock {
    pub year: i32,
    /// 1 to 12.
    pub month: u32,
    /// 1 to 31.
    pub day: u32,
    pub hour: u32,
    pub minute: u32,
    pub second: u32,
}

/// Codes that chrono writes as the C library does.
const SAME: &str = "aAbBcCdDeFgGhHIjklmMnpPrRStTuUVwWxXyY%";
/// Of these, numbers: their padding may be chosen with - (none), _ (spaces) and 0.
const NUMBERS: &str = "CdegGHIjklmMSuUVwWyY";

impl Clock {
    pub fn strftime(&self, format: &str) -> Result<String> {
        let date = NaiveDate::from_ymd_opt(self.year, self.month, self.day);
        // A leap second counts as the second before it.
        let moment = date.and_then(|date| date.and_hms_opt(self.hour, self.minute, self.second.min(59)));
        let Some(moment) = moment else {
            return Err(failed("strftime_now: the clock's date does not exist"));
        };
        let mut out = String::new();
        let mut rest = format;
        while let Some(at) = rest.find('%') {
            out.push_str(&rest[..at]);
            let code = &rest[at + 1..];
            let flag = code.chars().next().filter(|c| "-_0".contains(*c));
            let letter = code[flag.map_or(0, char::len_utf8)..].chars().next();
            let width = flag.map_or(0, char::len_utf8) + letter.map_or(0, char::len_utf8);
            let directive = &rest[at..at + 1 + width];
            match letter {
                Some('z' | 'Z') if flag.is_none() => {} // datetime.now() knows no zone
                Some(letter) if SAME.contains(letter) && (flag.is_none() || NUMBERS.contains(letter)) => {
                    let written = write!(out, "{}", moment.format(directive));
                    written.map_err(|_| refused(format!("strftime_now's code {directive}")))?;
                }
                _ => return Err(refused(format!("strftime_now's code {directive}"))),
            }
            rest = &rest[at + 1 + width..];
        }
        out.push_str(rest);
        Ok(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: &str = "%a %A %b %B %c %C %d %D %e %F %G %H %I %j %k %l %m %M %p %P %r %R %S %T %u %U %V %w %W %x %X %y %Y%z%Z %% %-d %-m %-H %-I %-j %_d %_m %0e %-y";

    /// Expected: Python 3.11's strftime in the C locale.
    #[test]
    fn equals_python() {
        let moment =
            |year, month, day, hour, minute, second| Clock { year, month, day, hour, minute, second };
        let cases = [
            (moment(2024, 2, 29, 0, 5, 9), "Thu Thursday Feb February Thu Feb 29 00:05:09 2024 20 29 02/29/24 29 2024-02-29 2024 00 12 060  0 12 02 05 AM am 12:05:09 AM 00:05 09 00:05:09 4 08 09 4 09 02/29/24 00:05:09 24 2024 % 29 2 0 12 60 29  2 29 24"),
            (moment(2021, 1, 3, 12, 0, 0), "Sun Sunday Jan January Sun Jan  3 12:00:00 2021 20 03 01/03/21  3 2021-01-03 2020 12 12 003 12 12 01 00 PM pm 12:00:00 PM 12:00 00 12:00:00 7 01 53 0 00 01/03/21 12:00:00 21 2021 % 3 1 12 12 3  3  1 03 21"),
            (moment(1999, 12, 31, 23, 59, 59), "Fri Friday Dec December Fri Dec 31 23:59:59 1999 19 31 12/31/99 31 1999-12-31 1999 23 11 365 23 11 12 59 PM pm 11:59:59 PM 23:59 59 23:59:59 5 52 52 5 52 12/31/99 23:59:59 99 1999 % 31 12 23 11 365 31 12 31 99"),
            (moment(2029, 12, 31, 1, 1, 1), "Mon Monday Dec December Mon Dec 31 01:01:01 2029 20 31 12/31/29 31 2029-12-31 2030 01 01 365  1  1 12 01 AM am 01:01:01 AM 01:01 01 01:01:01 1 52 01 1 53 12/31/29 01:01:01 29 2029 % 31 12 1 1 365 31 12 31 29"),
        ];
        for (clock, expected) in cases {
            assert_eq!(clock.strftime(ALL).unwrap(), expected);
        }
        for code in ["%Q", "%^a", "%10d", "%Ey", "%s", "%f", "%", "%-p", "%+"] {
            let refusal = moment(2024, 1, 1, 0, 0, 0).strftime(code).unwrap_err().message;
            assert!(refusal.contains(&code[..code.len().min(2)]), "{refusal}");
        }
    }
}
