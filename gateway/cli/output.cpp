#include <gateway/cli/output.hpp>

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
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

/// Characters, not bytes, of UTF-8.
std::size_t width_of(std::string_view text) {
    return static_cast<std::size_t>(
        std::ranges::count_if(text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; }));
}

}  // namespace

look look_of_stdout(bool json) {
    const bool table = !json && isatty(STDOUT_FILENO) == 1;
    const char* no_colour = std::getenv("NO_COLOR");
    const char* terminal = std::getenv("TERM");
    const bool plain =
        (no_colour != nullptr && *no_colour != '\0') || (terminal != nullptr && std::string_view(terminal) == "dumb");
    return {table, table && !plain};
}

cell::cell(std::string shown, colour painted) : text(std::move(shown)), paint(painted) {
    for (std::size_t i = 0; i < text.size(); ++i) {
        const auto byte = static_cast<unsigned char>(text[i]);
        if (byte < 0x20 || byte == 0x7f) text[i] = '?';
        // U+0080 to U+009F, which some terminals obey too.
        if (byte == 0xC2 && i + 1 < text.size() && static_cast<unsigned char>(text[i + 1]) < 0xA0)
            text.replace(i, 2, "?");
    }
}

std::string painted(std::string_view text, colour with, bool colours) {
    if (!colours || with == colour::none) return std::string(text);
    return std::string(code_of(with)).append(text).append("\033[0m");
}

table::table(std::vector<column> columns, std::ostream& out, bool colours)
    : columns_(std::move(columns)), out_(out), colours_(colours) {
    for (const auto& one : columns_)
        widths_.push_back(width_of(one.head));
}

void table::print(const std::vector<std::vector<cell>>& lines) {
    for (const auto& line : lines) {
        for (std::size_t i = 0; i < columns_.size(); ++i)
            widths_[i] = std::max(widths_[i], width_of(line[i].text));
    }
    if (!std::exchange(begun_, true)) {
        std::vector<cell> heads;
        for (const auto& one : columns_)
            heads.emplace_back(one.head, colour::faint);
        print_line(heads);
    }
    for (const auto& line : lines)
        print_line(line);
}

void table::print_line(const std::vector<cell>& line) {
    for (std::size_t i = 0; i < columns_.size(); ++i) {
        const std::string gap(widths_[i] - width_of(line[i].text), ' ');
        const bool last = i + 1 == columns_.size();
        if (columns_[i].right) out_ << gap;
        out_ << painted(line[i].text, line[i].paint, colours_);
        if (!columns_[i].right && !last) out_ << gap;
        out_ << (last ? "\n" : "  ");
    }
}

}  // namespace fencegate::cli
