#pragma once

#include <cstddef>
#include <iosfwd>
#include <string>
#include <string_view>
#include <vector>

namespace fencegate::cli {

/// How results are shown.
struct look {
    bool table = false;     ///< Else JSON lines.
    bool colours = false;   ///< Only in a table.
    std::size_t width = 0;  ///< Of the terminal, in characters; 0: not known.
};

/// A table on a terminal, with colours unless NO_COLOR is set (no-color.org) or TERM is dumb; JSON lines elsewhere and
/// with `json`.
look look_of_stdout(bool json);

enum class colour { none, red, green, yellow, faint };

/// A text of a table. Control characters, also those that turn the writing around, are shown as `?`: what the gateway
/// gives must not steer the terminal.
struct cell {
    cell(std::string shown, colour painted = colour::none);
    std::string text;
    colour paint;
};

/// The text between the codes of a colour, or as it is.
std::string painted(std::string_view text, colour with, bool colours);

/// Lines of cells in columns as wide as their widest cell so far. Where that is wider than the terminal, the texts of
/// elastic columns are cut, the longest first, down to elastic_min.
class table {
  public:
    static constexpr std::size_t elastic_min = 12;

    struct column {
        std::string head;
        bool right = false;    ///< Numbers.
        bool elastic = false;  ///< May be cut.
    };

    table(std::vector<column> columns, std::ostream& out, const look& how);

    /// Prints them, the heads before the first.
    void print(const std::vector<std::vector<cell>>& lines);

  private:
    std::vector<std::size_t> fitting() const;
    void print_line(const std::vector<cell>& line, const std::vector<std::size_t>& widths);

    std::vector<column> columns_;
    std::vector<std::size_t> widths_;
    std::ostream& out_;
    look how_;
    bool begun_ = false;
};

}  // namespace fencegate::cli
