// What fmt's library holds and its headers only declare, as far as this program uses it.
#include <fmt/format-inl.h>

namespace fmt {
inline namespace v9 {
namespace detail {
template auto dragonbox::to_decimal(float value) noexcept -> dragonbox::decimal_fp<float>;
template auto dragonbox::to_decimal(double value) noexcept -> dragonbox::decimal_fp<double>;
template auto thousands_sep_impl(locale_ref locale) -> thousands_sep_result<char>;
template auto decimal_point_impl(locale_ref locale) -> char;
template void buffer<char>::append(const char* begin, const char* end);
template void vformat_to(buffer<char>& to, string_view format,
                         basic_format_args<FMT_BUFFER_CONTEXT(char)> args, locale_ref locale);
}  // namespace detail
}  // namespace v9
}  // namespace fmt
