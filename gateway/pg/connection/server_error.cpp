#include <gateway/pg/connection/server_error.hpp>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>

namespace fencegate::pg {
namespace {

constexpr std::array<std::string_view, 12> labels{
    "\nDETAIL:  ",          "\nHINT:  ",       "\nQUERY:  ",       "\nCONTEXT:  ",
    "\nSCHEMA NAME:  ",     "\nTABLE NAME:  ", "\nCOLUMN NAME:  ", "\nDATATYPE NAME:  ",
    "\nCONSTRAINT NAME:  ", "\nLOCATION:  ",   "\nLINE ",          "\nserver closed the connection",
};

/// Returns where the next label begins; the text's size where there is none.
std::size_t next_label(std::string_view text, std::size_t begin) {
    auto end = text.size();
    for (const auto label : labels)
        end = std::min(end, text.find(label, begin));
    return end;
}

bool is_sqlstate(std::string_view text) {
    return text.size() == 5 && std::all_of(text.begin(), text.end(),
                                           [](unsigned char c) { return std::isdigit(c) || (c >= 'A' && c <= 'Z'); });
}

std::string_view trimmed(std::string_view text) {
    while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back())))
        text.remove_suffix(1);
    return text;
}

/// Returns the message without the position in the statement, which the caller never saw. libpq appends the position
/// where it does not have the statement's text.
std::string_view remove_position(std::string_view message) {
    constexpr std::string_view marker = " at character ";
    const auto found = message.rfind(marker);
    const bool at_end = found != std::string_view::npos &&
                        message.find_first_not_of("0123456789", found + marker.size()) == std::string_view::npos;
    return at_end ? message.substr(0, found) : message;
}

/// Returns the text between a label and the next one.
std::string section(std::string_view text, std::size_t label_at, std::string_view label) {
    if (label_at == std::string_view::npos) return {};
    const auto begin = label_at + label.size();
    return std::string(trimmed(text.substr(begin, next_label(text, begin) - begin)));
}

}  // namespace

server_error parse_server_error(std::string_view text) {
    server_error out;
    // "ERROR:  23514: the message". The severity is a word in the server's language.
    const auto severity_end = text.find(":  ");
    if (severity_end != std::string_view::npos && is_sqlstate(text.substr(severity_end + 3, 5)) &&
        text.substr(severity_end + 8, 2) == ": ") {
        const auto severity = text.substr(0, severity_end);
        out.fatal = severity.ends_with("FATAL") || severity.ends_with("PANIC");
        out.sqlstate = text.substr(severity_end + 3, 5);
        text.remove_prefix(severity_end + 10);
    }
    out.message = remove_position(trimmed(text.substr(0, next_label(text, 0))));
    out.detail = section(text, text.find(labels[0]), labels[0]);
    const auto context = section(text, text.rfind(labels[3]), labels[3]);
    out.parameter = parameter_of(context);
    out.in_code = names_code(context);
    out.constraint = section(text, text.rfind(labels[8]), labels[8]);
    out.origin = section(text, text.rfind(labels[9]), labels[9]);
    out.origin.resize(std::min(out.origin.size(), out.origin.find(',')));
    return out;
}

std::size_t parameter_of(std::string_view context) {
    // The outermost line. Lines of SQL and of functions, which have parameters of their own, contain quotes or brackets
    // before the parameter.
    const auto line = context.substr(context.rfind('\n') + 1);
    const auto sign = line.find('$');
    if (sign == std::string_view::npos || line.substr(0, sign).find_first_of("\"'(:") != std::string_view::npos)
        return 0;
    std::size_t number = 0;
    const auto [end, error] = std::from_chars(line.data() + sign + 1, line.data() + line.size(), number);
    const auto rest = line.substr(static_cast<std::size_t>(end - line.data()));
    return error == std::errc{} && (rest.empty() || rest.starts_with(" = '")) ? number : 0;
}

bool names_code(std::string_view context) {
    return !context.empty() && (parameter_of(context) == 0 || context.find('\n') != std::string_view::npos);
}

}  // namespace fencegate::pg
