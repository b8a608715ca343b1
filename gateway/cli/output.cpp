#include <gateway/cli/output.hpp>

#include <gateway/runtime/text.hpp>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <numeric>
#include <stdexcept>
#include <system_error>
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

[[noreturn]] void fail(const std::string& file) {
    throw std::runtime_error(file + ": " + std::generic_category().message(errno));
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

void end_torn_line() {
    struct stat output {};
    if (fstat(STDOUT_FILENO, &output) != 0 || !S_ISREG(output.st_mode) || output.st_size == 0) return;
    std::ifstream written("/proc/self/fd/1", std::ios::binary);
    written.seekg(-1, std::ios::end);
    if (written.peek() != '\n') std::cout << "\n";
}

place_file::place_file(const std::string& file) : file_(file), lock_name_(file + ".lock") {
    lock_ = open(lock_name_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (lock_ < 0) fail(lock_name_);
    if (flock(lock_, LOCK_EX | LOCK_NB) == 0) return;
    close(lock_);
    throw std::runtime_error("another process follows with the place " + file_);
}

place_file::~place_file() {
    close(lock_);
}

std::string place_file::read() const {
    std::ifstream in(file_);
    if (!in && errno == ENOENT) return {};
    std::string id;
    // A damaged place must not become the present: events would be left out.
    if (!in || !std::getline(in, id) || in.eof() || id.empty())
        throw std::runtime_error(file_ + " has no place: it can't be read, or is damaged");
    return id;
}

void place_file::write(const std::string& id) const {
    fsync(STDOUT_FILENO);  // fails for a pipe
    const std::string made = file_ + ".new";
    const std::string text = id + "\n";
    const int file = open(made.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (file < 0) fail(made);
    const bool good = ::write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size()) && fsync(file) == 0;
    const int fault = errno;
    close(file);
    errno = fault;
    if (!good || std::rename(made.c_str(), file_.c_str()) != 0) fail(file_);
}

}  // namespace fencegate::cli
