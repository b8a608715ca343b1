#pragma once

#include <clocale>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace fencegate::runtime {

/// Percent-encodes every character but letters, digits and `-._~`, for one segment of a path or one value of a query
/// (RFC 3986, 2.3).
std::string percent_encode(std::string_view text);

/// Returns the text with the byte of each `%` and two hexadecimal digits in their place; empty if a `%` has other
/// characters after it.
std::optional<std::string> percent_decode(std::string_view text);

/// Returns libcurl's text for a failed transfer without the URL of a proxy, which may contain a password.
std::string hide_proxy(std::string text);

// --- What is printed, perhaps on a terminal.

/// Sets the locale of this thread to UTF-8 for its lifetime, whatever the environment says. glibc always has the
/// locale.
class utf8_scope {
  public:
    utf8_scope();
    ~utf8_scope();
    utf8_scope(const utf8_scope&) = delete;
    utf8_scope& operator=(const utf8_scope&) = delete;

  private:
    locale_t previous_;
};

struct character {
    std::size_t bytes = 1;
    wchar_t code = 0;  ///< 0: not a valid character.

    /// Returns the columns that the character takes on a terminal: 2 for an ideograph, 0 for a combining accent.
    std::size_t width() const;

    /// Returns whether the character is invalid, a control character or changes the direction of writing.
    bool is_unsafe() const;
};

/// Reads the first character of a text that is not empty, within a utf8_scope.
character read_character(std::string_view text);

/// Returns the columns that the text takes on a terminal.
std::size_t display_width(std::string_view text);

/// Returns the text, truncated to `width` columns with `…` at its end if it is longer.
std::string truncate_text(std::string_view text, std::size_t width);

/// Returns the text with `?` for each unsafe character, so that a text from elsewhere can't control the terminal.
std::string make_printable(std::string_view text);

/// As make_printable for each line of a message; the line ends stay.
std::string make_lines_printable(std::string_view text);

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
