#include <gateway/runtime/terminal.hpp>

#include <gateway/runtime/text.hpp>

#include <unistd.h>

#include <iostream>
#include <utility>

namespace fencegate::runtime {

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
