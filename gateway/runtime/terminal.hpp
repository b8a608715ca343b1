#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace fencegate::runtime {

/// Prints a message about a command to standard error, without what could control a terminal.
void print_error(std::string_view command, std::string_view message);

/// Returns a text from elsewhere as standard output gets it: each of its lines as make_printable if that is a terminal;
/// else unchanged, because a file or a program gets the exact bytes.
std::string prepare_for_stdout(std::string text);
bool is_terminal_stdout();

/// Reads CSV in pieces and returns whole lines as prepare_for_stdout. A line end within quotes is part of a line.
///
/// Limits: line_bytes_max; a longer line is returned in parts.
class csv_filter {
  public:
    static constexpr std::size_t line_bytes_max = std::size_t{1} << 20U;

    explicit csv_filter(bool on_terminal) : on_terminal_(on_terminal) {}
    /// Out: the lines that this piece ends; if standard output is no terminal, the piece itself.
    std::string take(std::string_view piece);

  private:
    bool on_terminal_;
    bool quoted_ = false;
    std::string line_;  ///< What has arrived of the current line.
};

}  // namespace fencegate::runtime
