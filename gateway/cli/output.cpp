#include <gateway/cli/output.hpp>

#include <gateway/runtime/text.hpp>

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <numeric>
#include <utility>

namespace fencegate::cli {
namespace {

using runtime::display_width;
using runtime::truncate_text;

std::string_view escape_code(colour which) {
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

}  // namespace

output_style detect_output_style(bool json) {
    const bool table = !json && isatty(STDOUT_FILENO) == 1;
    const char* no_colour = std::getenv("NO_COLOR");
    const char* terminal = std::getenv("TERM");
    const bool plain =
        (no_colour != nullptr && *no_colour != '\0') || (terminal != nullptr && std::string_view(terminal) == "dumb");
    winsize size{};
    const bool sized = table && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0;
    return {table, table && !plain, sized ? size.ws_col : std::size_t{0}};
}

cell::cell(std::string content, colour content_colour)
    : text(runtime::make_printable(content)), text_colour(content_colour) {}

std::string colourize(std::string_view text, colour text_colour, bool colours) {
    if (!colours || text_colour == colour::none) return std::string(text);
    return std::string(escape_code(text_colour)).append(text).append("\033[0m");
}

table::table(std::vector<column> columns, std::ostream& out, const output_style& style)
    : columns_(std::move(columns)), out_(out), style_(style) {
    for (const auto& each : columns_)
        widths_.push_back(display_width(each.header));
}

void table::print(const std::vector<std::vector<cell>>& lines) {
    for (const auto& line : lines) {
        for (std::size_t i = 0; i < columns_.size(); ++i)
            widths_[i] = std::max(widths_[i], display_width(line[i].text));
    }
    const auto widths = fit_widths();
    if (!std::exchange(header_printed_, true)) {
        std::vector<cell> headers;
        for (const auto& each : columns_)
            headers.emplace_back(each.header, colour::faint);
        print_line(headers, widths);
    }
    for (const auto& line : lines)
        print_line(line, widths);
}

std::vector<std::size_t> table::fit_widths() const {
    auto out = widths_;
    auto total = std::accumulate(out.begin(), out.end(), 2 * (out.size() - 1));
    for (unsigned order = 1; order <= columns_.size(); ++order) {
        for (std::size_t i = 0; i < out.size(); ++i) {
            if (columns_[i].cut_order != order || style_.width == 0 || total <= style_.width) continue;
            const std::size_t excess = total - style_.width;
            const std::size_t spare = out[i] - std::min(out[i], elastic_min);
            const std::size_t cut = std::min(excess, spare);
            out[i] -= cut;
            total -= cut;
        }
    }
    return out;
}

void table::print_line(const std::vector<cell>& line, const std::vector<std::size_t>& widths) {
    for (std::size_t i = 0; i < columns_.size(); ++i) {
        const std::string text = truncate_text(line[i].text, widths[i]);
        const std::string gap(widths[i] - display_width(text), ' ');
        const bool last = i + 1 == columns_.size();
        if (columns_[i].align_right) out_ << gap;
        out_ << colourize(text, line[i].text_colour, style_.colours);
        if (!columns_[i].align_right && !last) out_ << gap;
        out_ << (last ? "\n" : "  ");
    }
}

}  // namespace fencegate::cli
