#pragma once

#include <cstddef>
#include <iosfwd>
#include <string>
#include <string_view>
#include <vector>

namespace fencegate::cli {

/// How results are shown.
struct output_style {
    bool table = false;     ///< Else JSON lines.
    bool colours = false;   ///< Only in a table.
    std::size_t width = 0;  ///< Columns of the terminal; 0: not known.
};

/// Chooses a table when standard output is a terminal, with colours unless NO_COLOR is set (no-color.org) or TERM is
/// dumb. Chooses JSON lines elsewhere, and when `json` is true.
output_style detect_output_style(bool json);

enum class colour { none, red, green, yellow, faint };

/// One cell of a table. Control characters and those that change the direction of writing are replaced by `?`, so that
/// a text from the gateway can't control the terminal.
struct cell {
    cell(std::string content, colour content_colour = colour::none);
    std::string text;
    colour text_colour;
};

/// Returns the text between the escape codes of a colour; unchanged when `colours` is false.
std::string colourize(std::string_view text, colour text_colour, bool colours);

/// Prints lines of cells in columns that are as wide as their widest cell so far. When the table is wider than the
/// terminal, truncates columns in the order of their `cut_order`, each down to elastic_min before the next.
class table {
  public:
    static constexpr std::size_t elastic_min = 12;

    struct column {
        std::string header;
        bool align_right = false;
        unsigned cut_order = 0;  ///< 1 is truncated first; 0: never.
    };

    table(std::vector<column> columns, std::ostream& out, const output_style& style);

    /// Prints the lines; the first call prints the headers first.
    void print(const std::vector<std::vector<cell>>& lines);

  private:
    std::vector<std::size_t> fit_widths() const;
    void print_line(const std::vector<cell>& line, const std::vector<std::size_t>& widths);

    std::vector<column> columns_;
    std::vector<std::size_t> widths_;
    std::ostream& out_;
    output_style style_;
    bool header_printed_ = false;
};

/// Ends the line that a process which was killed has left in the file that is printed to.
void end_torn_line();

/// The file with the id of the last event that was printed. One process at a time has it. Its functions throw
/// std::runtime_error.
class place_file {
  public:
    explicit place_file(const std::string& file);
    ~place_file();
    place_file(const place_file&) = delete;
    place_file& operator=(const place_file&) = delete;

    /// Out: empty if there is no such file yet.
    std::string read() const;
    /// Replaces the file, so that it is whole also after the machine died. What was printed is stored before it.
    void write(const std::string& id) const;

  private:
    std::string file_, lock_name_;
    int lock_ = -1;
};

}  // namespace fencegate::cli
