#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace fencegate::runtime {

/// Prints `fencegate COMMAND: MESSAGE` to standard error, with `?` for each character that could control a terminal.
void print_error(std::string_view command, std::string_view message);

/// Returns a text of a server or another process for standard output. If that is a terminal, the text has `?` for each
/// unsafe character (make_lines_printable); a file or another program gets it unchanged.
std::string prepare_for_stdout(std::string text);
bool is_stdout_terminal();

/// Prepares CSV that arrives in pieces as prepare_for_stdout does. For a terminal it does so line by line, where a line
/// end within quotes is a part of the line and not its end.
///
/// Limits: line_bytes_max; a longer line is returned in parts.
class csv_filter {
  public:
    static constexpr std::size_t line_bytes_max = std::size_t{1} << 20U;

    /// In: `on_terminal`: is_stdout_terminal(), but in tests.
    explicit csv_filter(bool on_terminal) : on_terminal_(on_terminal) {}
    /// Takes the next piece.
    ///
    /// Out: what to print: the lines that end in this piece; not on a terminal, the piece itself.
    std::string take(std::string_view piece);

  private:
    bool on_terminal_;
    bool quoted_ = false;  ///< Within quotes.
    std::string line_;     ///< What has arrived of the current line.
};

}  // namespace fencegate::runtime
