#include <gateway/runtime/text.hpp>

#include <boost/url/encode.hpp>
#include <boost/url/pct_string_view.hpp>
#include <boost/url/rfc/unreserved_chars.hpp>

#include <unistd.h>

#include <algorithm>
#include <cwchar>
#include <cwctype>
#include <iostream>
#include <utility>

namespace fencegate::runtime {

std::string percent_encode(std::string_view text) {
    return boost::urls::encode({text.data(), text.size()}, boost::urls::unreserved_chars);
}

std::optional<std::string> percent_decode(std::string_view text) {
    if (text.find('%') == std::string_view::npos) return std::string(text);
    const auto encoded = boost::urls::make_pct_string_view({text.data(), text.size()});
    if (!encoded) return std::nullopt;
    return encoded->decode();
}

namespace {

locale_t utf8_locale() {
    static const locale_t created = newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr);
    return created;
}

}  // namespace

std::string hide_proxy(std::string text) {
    if (text.starts_with("Unsupported proxy")) return "http_proxy, https_proxy or all_proxy is not the URL of a proxy";
    return text;
}

utf8_scope::utf8_scope() : previous_(uselocale(utf8_locale())) {}

utf8_scope::~utf8_scope() {
    uselocale(previous_);
}

std::size_t character::width() const {
    return static_cast<std::size_t>(std::max(0, wcwidth(code)));
}

bool character::is_unsafe() const {
    return code == 0 || iswcntrl(static_cast<wint_t>(code)) != 0 || code == 0x061C || code == 0x200E ||
           code == 0x200F || (code >= 0x202A && code <= 0x202E) || (code >= 0x2066 && code <= 0x2069);
}

character read_character(std::string_view text) {
    std::mbstate_t state{};
    wchar_t code = 0;
    const std::size_t bytes = std::mbrtowc(&code, text.data(), text.size(), &state);
    // glibc reads the longer forms of the first UTF-8 too, which are no characters of Unicode.
    constexpr wchar_t last_character = 0x10FFFF;
    if (bytes == 0 || bytes > text.size() || code > last_character) return {};
    return {bytes, code};
}

std::size_t display_width(std::string_view text) {
    const utf8_scope utf8;
    std::size_t out = 0;
    while (!text.empty()) {
        const character next = read_character(text);
        out += next.width();
        text.remove_prefix(next.bytes);
    }
    return out;
}

std::string truncate_text(std::string_view text, std::size_t width) {
    if (display_width(text) <= width) return std::string(text);
    const utf8_scope utf8;
    std::size_t end = 0;
    for (std::size_t used = 1; end < text.size();) {
        const character next = read_character(text.substr(end));
        used += next.width();
        if (used > width) break;
        end += next.bytes;
    }
    return std::string(text.substr(0, end)) + "…";
}

std::string make_printable(std::string_view text) {
    const utf8_scope utf8;
    std::string out;
    while (!text.empty()) {
        const character next = read_character(text);
        out += next.is_unsafe() ? "?" : text.substr(0, next.bytes);
        text.remove_prefix(next.bytes);
    }
    return out;
}

std::string make_lines_printable(std::string_view text) {
    std::string out;
    for (;;) {
        const std::size_t end = text.find('\n');
        out += make_printable(text.substr(0, end));
        if (end == std::string_view::npos) return out;
        out += '\n';
        text.remove_prefix(end + 1);
    }
}

void print_error(std::string_view command, std::string_view message) {
    std::cerr << "fencegate " << command << ": " << make_lines_printable(message) << "\n" << std::flush;
}

std::string prepare_for_stdout(std::string text) {
    return is_stdout_terminal() ? make_lines_printable(text) : std::move(text);
}

bool is_stdout_terminal() {
    return isatty(STDOUT_FILENO) == 1;
}

std::string csv_filter::take(std::string_view piece) {
    if (!on_terminal_) return std::string(piece);
    std::string out;
    for (const char c : piece) {
        if (c == '"') quoted_ = !quoted_;
        if (quoted_ || c != '\n') {
            line_ += c;
            if (line_.size() < line_bytes_max) continue;
            out += make_printable(line_);
            line_.clear();
            continue;
        }
        if (line_.ends_with('\r')) line_.pop_back();
        out += make_printable(line_) + "\n";
        line_.clear();
    }
    return out;
}

}  // namespace fencegate::runtime
