//! strftime_now: the caller's local time, formatted as Python's datetime.now().strftime does in the C locale.

use super::python::error;
use minijinja::Error;

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

const DAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

impl Clock {
    /// Days since Sunday, from the days since a Wednesday, the first of March of year 0.
    fn weekday(&self) -> u32 {
        let shift = i32::from(self.month < 3);
        let (year, month) = (self.year - shift, (self.month as i32 + 9) % 12);
        let days = 365 * year + year.div_euclid(4) - year.div_euclid(100)
            + year.div_euclid(400)
            + (153 * month + 2) / 5
            + self.day as i32;
        (days + 2).rem_euclid(7) as u32
    }

    /// Days since the first of January.
    fn yearday(&self) -> u32 {
        let leap = self.year % 4 == 0 && (self.year % 100 != 0 || self.year % 400 == 0);
        let before = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334];
        before[(self.month as usize - 1) % 12] + self.day - 1 + u32::from(leap && self.month > 2)
    }

    /// ISO 8601: the year and the week that this day belongs to.
    fn iso_week(&self) -> (i32, u32) {
        let monday_based = (self.weekday() + 6) % 7;
        let week = (self.yearday() + 10 - (monday_based + 1)) / 7;
        let weeks_in = |year: i32| {
            let last = Clock { year, month: 12, day: 31, ..*self };
            let first = Clock { year, month: 1, day: 1, ..*self };
            if first.weekday() == 4 || last.weekday() == 4 {
                53
            } else {
                52
            }
        };
        match week {
            0 => (self.year - 1, weeks_in(self.year - 1)),
            53 if weeks_in(self.year) == 52 => (self.year + 1, 1),
            _ => (self.year, week),
        }
    }

    pub fn strftime(&self, format: &str) -> Result<String, Error> {
        let mut out = String::new();
        let mut chars = format.chars();
        while let Some(c) = chars.next() {
            if c != '%' {
                out.push(c);
                continue;
            }
            let mut code = chars.next();
            let bare = code == Some('-');
            if bare {
                code = chars.next();
            }
            let text = code.and_then(|code| self.field(code)).ok_or_else(|| {
                error(format!("strftime_now: the format '{format}' has a code that is not supported"))
            })?;
            let padded = text.trim_start_matches(['0', ' ']);
            out.push_str(if !bare {
                &text
            } else if padded.is_empty() {
                "0"
            } else {
                padded
            });
        }
        Ok(out)
    }

    fn field(&self, code: char) -> Option<String> {
        let hour12 = (self.hour + 11) % 12 + 1;
        let day = DAYS[self.weekday() as usize];
        let month = MONTHS[(self.month as usize - 1) % 12];
        let many = |codes: &str| self.strftime(codes).ok();
        Some(match code {
            'a' => day[..3].to_string(),
            'A' => day.to_string(),
            'b' | 'h' => month[..3].to_string(),
            'B' => month.to_string(),
            'c' => return many("%a %b %e %H:%M:%S %Y"),
            'C' => format!("{:02}", self.year.div_euclid(100)),
            'd' => format!("{:02}", self.day),
            'D' | 'x' => return many("%m/%d/%y"),
            'e' => format!("{:2}", self.day),
            'F' => return many("%Y-%m-%d"),
            'G' => self.iso_week().0.to_string(),
            'H' => format!("{:02}", self.hour),
            'I' => format!("{hour12:02}"),
            'j' => format!("{:03}", self.yearday() + 1),
            'm' => format!("{:02}", self.month),
            'M' => format!("{:02}", self.minute),
            'n' => "\n".to_string(),
            'p' => if self.hour < 12 { "AM" } else { "PM" }.to_string(),
            'R' => return many("%H:%M"),
            'S' => format!("{:02}", self.second),
            't' => "\t".to_string(),
            'T' | 'X' => return many("%H:%M:%S"),
            'u' => (if self.weekday() == 0 { 7 } else { self.weekday() }).to_string(),
            'U' => format!("{:02}", (self.yearday() + 7 - self.weekday()) / 7),
            'V' => format!("{:02}", self.iso_week().1),
            'w' => self.weekday().to_string(),
            'W' => format!("{:02}", (self.yearday() + 7 - (self.weekday() + 6) % 7) / 7),
            'y' => format!("{:02}", self.year.rem_euclid(100)),
            'Y' => self.year.to_string(),
            'z' | 'Z' => String::new(), // datetime.now() knows no zone
            '%' => "%".to_string(),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: &str = "%a %A %b %B %c %C %d %D %e %F %G %H %I %j %m %M %p %R %S %T %u %U %V %w %W %x %X %y %Y%z%Z %% %-d %-m %-H %-I %-j";

    /// Expected: Python 3.11's strftime in the C locale.
    #[test]
    fn equals_python() {
        let moment =
            |year, month, day, hour, minute, second| Clock { year, month, day, hour, minute, second };
        let cases = [
            (moment(2024, 2, 29, 0, 5, 9), "Thu Thursday Feb February Thu Feb 29 00:05:09 2024 20 29 02/29/24 29 2024-02-29 2024 00 12 060 02 05 AM 00:05 09 00:05:09 4 08 09 4 09 02/29/24 00:05:09 24 2024 % 29 2 0 12 60"),
            (moment(2021, 1, 3, 12, 0, 0), "Sun Sunday Jan January Sun Jan  3 12:00:00 2021 20 03 01/03/21  3 2021-01-03 2020 12 12 003 01 00 PM 12:00 00 12:00:00 7 01 53 0 00 01/03/21 12:00:00 21 2021 % 3 1 12 12 3"),
            (moment(1999, 12, 31, 23, 59, 59), "Fri Friday Dec December Fri Dec 31 23:59:59 1999 19 31 12/31/99 31 1999-12-31 1999 23 11 365 12 59 PM 23:59 59 23:59:59 5 52 52 5 52 12/31/99 23:59:59 99 1999 % 31 12 23 11 365"),
            (moment(2029, 12, 31, 1, 1, 1), "Mon Monday Dec December Mon Dec 31 01:01:01 2029 20 31 12/31/29 31 2029-12-31 2030 01 01 365 12 01 AM 01:01 01 01:01:01 1 52 01 1 53 12/31/29 01:01:01 29 2029 % 31 12 1 1 365"),
        ];
        for (clock, expected) in cases {
            assert_eq!(clock.strftime(ALL).unwrap(), expected);
        }
        assert!(moment(2024, 1, 1, 0, 0, 0).strftime("%Q").unwrap_err().to_string().contains("%Q"));
    }
}
