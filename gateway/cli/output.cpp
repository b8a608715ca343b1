#include <gateway/cli/output.hpp>

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <clocale>
#include <cstdlib>
#include <cwchar>
#include <cwctype>
#include <numeric>
#include <ostream>
#include <utility>

namespace fencegate::cli {
namespace {

std::string_view code_of(colour which) {
    switch (which) {
        case colour::red:
            return "\033[31m";
        case colour::green:
            return "\033[32m";
        case colour::yellow:
            return "\033[33m";
        case colour::faint:
            return "\033[2m";
        case colour::none:
            return "";
    }
    return "";
}

/// As long as it lives, this thread takes texts for UTF-8, whatever the environment says. glibc always has the locale.
class utf8 {
  public:
    utf8() : before_(uselocale(locale())) {}
    ~utf8() { uselocale(before_); }
    utf8(const utf8&) = delete;
    utf8& operator=(const utf8&) = delete;

  private:
    static locale_t locale() {
        static const locale_t made = newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr);
        return made;
    }

    locale_t before_;
};

struct character {
    std::size_t bytes = 1;
    wchar_t code = 0;  ///< 0: none that there is.

    /// In columns of a terminal: 2 of an ideograph, 0 of an accent that is set on the one before.
    std::size_t width() const { return static_cast<std::size_t>(std::max(0, wcwidth(code))); }

    bool steers() const {
        return code == 0 || iswcntrl(static_cast<wint_t>(code)) != 0 || code == 0x061C || code == 0x200E ||
               code == 0x200F || (code >= 0x202A && code <= 0x202E) || (code >= 0x2066 && code <= 0x2069);
    }
};

/// The first of a text that is not empty.
character first_of(std::string_view text) {
    std::mbstate_t state{};
    wchar_t code = 0;
    const std::size_t bytes = std::mbrtowc(&code, text.data(), text.size(), &state);
    if (bytes == 0 || bytes > text.size()) return {};
    return {bytes, code};
}

std::size_t width_of(std::string_view text) {
    const utf8 here;
    std::size_t out = 0;
    while (!text.empty()) {
        const character next = first_of(text);
        out += next.width();
        text.remove_prefix(next.bytes);
    }
    return out;
}

/// As much of it as has room, with a mark where something is left out.
std::string cut(std::string_view text, std::size_t room) {
    if (width_of(text) <= room) return std::string(text);
    const utf8 here;
    std::size_t end = 0;
    for (std::size_t used = 1; end < text.size();) {
        const character next = first_of(text.substr(end));
        used += next.width();
        if (used > room) break;
        end += next.bytes;
    }
    return std::string(text.substr(0, end)) + "…";
}

}  // namespace

look look_of_stdout(bool json) {
    const bool table = !json && isatty(STDOUT_FILENO) == 1;
    const char* no_colour = std::getenv("NO_COLOR");
    const char* terminal = std::getenv("TERM");
    const bool plain =
        (no_colour != nullptr && *no_colour != '\0') || (terminal != nullptr && std::string_view(terminal) == "dumb");
    winsize size{};
    const bool sized = table && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0;
    return {table, table && !plain, sized ? size.ws_col : std::size_t{0}};
}

cell::cell(std::string shown, colour painted) : paint(painted) {
    const utf8 here;
    for (std::string_view rest = shown; !rest.empty();) {
        const character next = first_of(rest);
        text += next.steers() ? "?" : rest.substr(0, next.bytes);
        rest.remove_prefix(next.bytes);
    }
}

std::string painted(std::string_view text, colour with, bool colours) {
    if (!colours || with == colour::none) return std::string(text);
    return std::string(code_of(with)).append(text).append("\033[0m");
}

table::table(std::vector<column> columns, std::ostream& out, const look& how)
    : columns_(std::move(columns)), out_(out), how_(how) {
    for (const auto& one : columns_)
        widths_.push_back(width_of(one.head));
}

void table::print(const std::vector<std::vector<cell>>& lines) {
    for (const auto& line : lines) {
        for (std::size_t i = 0; i < columns_.size(); ++i)
            widths_[i] = std::max(widths_[i], width_of(line[i].text));
    }
    const auto widths = fitting();
    if (!std::exchange(begun_, true)) {
        std::vector<cell> heads;
        for (const auto& one : columns_)
            heads.emplace_back(one.head, colour::faint);
        print_line(heads, widths);
    }
    for (const auto& line : lines)
        print_line(line, widths);
}

std::vector<std::size_t> table::fitting() const {
    auto out = widths_;
    auto total = std::accumulate(out.begin(), out.end(), 2 * (out.size() - 1));
    while (how_.width > 0 && total > how_.width) {
        auto longest = out.end();
        for (std::size_t i = 0; i < out.size(); ++i) {
            const auto here = out.begin() + static_cast<std::ptrdiff_t>(i);
            if (columns_[i].elastic && *here > elastic_min && (longest == out.end() || *here > *longest))
                longest = here;
        }
        if (longest == out.end()) break;
        --*longest;
        --total;
    }
    return out;
}

void table::print_line(const std::vector<cell>& line, const std::vector<std::size_t>& widths) {
    for (std::size_t i = 0; i < columns_.size(); ++i) {
        const std::string text = cut(line[i].text, widths[i]);
        const std::string gap(widths[i] - width_of(text), ' ');
        const bool last = i + 1 == columns_.size();
        if (columns_[i].right) out_ << gap;
        out_ << painted(text, line[i].paint, how_.colours);
        if (!columns_[i].right && !last) out_ << gap;
        out_ << (last ? "\n" : "  ");
    }
}

}  // namespace fencegate::cli
