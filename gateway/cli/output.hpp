#pragma once

#include <cstddef>
#include <iosfwd>
#include <string>
#include <string_view>
#include <vector>

namespace fencegate::cli {

/// How results are shown.
struct look {
    bool table = false;    ///< Else JSON lines.
    bool colours = false;  ///< Only in a table.
};

/// A table on a terminal, with colours unless NO_COLOR is set (no-color.org) or TERM is dumb; JSON lines elsewhere and
/// with `json`.
look look_of_stdout(bool json);

enum class colour { none, red, green, yellow, faint };

/// A text of a table. Control characters are shown as `?`: what the gateway gives must not steer the terminal.
struct cell {
    cell(std::string shown, colour painted = colour::none);
    std::string text;
    colour paint;
};

/// The text between the codes of a colour, or as it is.
std::string painted(std::string_view text, colour with, bool colours);

/// Lines of cells in columns as wide as their widest cell so far.
class table {
  public:
    struct column {
        std::string head;
        bool right = false;  ///< Numbers.
    };

    table(std::vector<column> columns, std::ostream& out, bool colours);

    /// Prints them, the heads before the first.
    void print(const std::vector<std::vector<cell>>& lines);

  private:
    void print_line(const std::vector<cell>& line);

    std::vector<column> columns_;
    std::vector<std::size_t> widths_;
    std::ostream& out_;
    bool colours_;
    bool begun_ = false;
};

}  // namespace fencegate::cli
