#include <gateway/config/conninfo.hpp>

#include <gateway/config/reader.hpp>

#include <libpq-fe.h>

#include <algorithm>
#include <cctype>
#include <memory>
#include <string_view>
#include <vector>

namespace fencegate {
namespace {

using options_ptr = std::unique_ptr<PQconninfoOption, decltype(&PQconninfoFree)>;

std::vector<std::string> option_names() {
    const options_ptr known(PQconndefaults(), &PQconninfoFree);
    std::vector<std::string> out;
    for (const auto* option = known.get(); option != nullptr && option->keyword != nullptr; ++option)
        out.emplace_back(option->keyword);
    return out;
}

/// Returns the connection string without everything that may be a part of a password: in a URI what follows the user,
/// and in both forms the rest after an option that names a password, whose value may continue after a space or `&`.
std::string without_passwords(std::string conninfo) {
    if (is_connection_uri(conninfo)) {
        const auto user = conninfo.find("://") + 3;
        const auto begin = conninfo.find(':', user);
        const auto at = conninfo.find('@', user);
        auto end = at == std::string::npos ? conninfo.find('?', user) : at;
        if (may_misread_password(conninfo)) end = std::string::npos;
        if (begin < end) conninfo.replace(begin, end - begin, 1, '\0');
    }
    std::string lower = conninfo;
    std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return std::tolower(c); });
    const auto name = lower.find("pass");
    if (name == std::string::npos) return conninfo;
    const auto value = std::min(conninfo.find('=', name), conninfo.find_first_of(" \t\r\n", name));
    return value == std::string::npos ? conninfo : conninfo.substr(0, value + 1);
}

/// Returns whether `word` is between separators in `text`.
bool has_word(const std::string& text, const std::string& word) {
    constexpr std::string_view separators = " \t\r\n=?&@:/";
    for (auto at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) {
        const bool begins = at == 0 || separators.find(text[at - 1]) != std::string_view::npos;
        const auto end = at + word.size();
        if (begins && (end == text.size() || separators.find(text[end]) != std::string_view::npos)) return true;
    }
    return false;
}

/// Returns libpq's message without what it quotes of the connection string, if that may be a part of a password.
std::string describe_parse_error(std::string message, const std::string& conninfo) {
    while (message.ends_with('\n'))
        message.pop_back();
    // libpq quotes signs such as "=" first. What it quotes last may contain quotes.
    auto begin = message.find('"');
    while (begin != std::string::npos && begin + 2 < message.size() && message[begin + 2] == '"' &&
           std::string_view("=:/]").find(message[begin + 1]) != std::string_view::npos)
        begin = message.find('"', begin + 3);
    const auto end = message.rfind('"');
    if (begin == std::string::npos || begin >= end) return message;
    const std::string quoted = message.substr(begin + 1, end - begin - 1);
    const bool is_option =
        message.starts_with("invalid connection option") || message.starts_with("invalid URI query parameter");
    const auto meant = is_option && quoted.size() >= 4 ? config_reader::nearest(quoted, option_names()) : std::nullopt;
    if (!meant && !has_word(without_passwords(conninfo), quoted)) message.replace(begin + 1, end - begin - 1, "***");
    if (meant) message += "; did you mean " + *meant + "?";
    return message;
}

}  // namespace

bool is_connection_uri(const std::string& conninfo) {
    return conninfo.starts_with("postgresql://") || conninfo.starts_with("postgres://");
}

bool may_misread_password(const std::string& conninfo) {
    if (!is_connection_uri(conninfo)) return false;
    const auto begin = conninfo.find("://") + 3;
    const auto first = conninfo.find('@', begin);
    return first != std::string::npos &&
           (conninfo.find('/', begin) < first || conninfo.find('@', first + 1) != std::string::npos);
}

std::optional<std::string> find_conninfo_fault(const std::string& conninfo) {
    char* error = nullptr;
    const options_ptr parsed(PQconninfoParse(conninfo.c_str(), &error), &PQconninfoFree);
    const std::unique_ptr<char, decltype(&PQfreemem)> message(error, &PQfreemem);
    if (!parsed) return message ? describe_parse_error(message.get(), conninfo) : std::string("out of memory");
    for (const auto* option = parsed.get(); option->keyword != nullptr; ++option) {
        if (option->val == nullptr || std::string_view(option->keyword) != "port") continue;
        if (std::string_view(option->val).find_first_not_of("0123456789, ") == std::string_view::npos) continue;
        // In a URI with a faulty password, this may be a part of it.
        return std::string("the port is not a number") +
               (is_connection_uri(conninfo) ? "; @, :, / and % in a user or password have to be percent-encoded" : "");
    }
    return std::nullopt;
}

}  // namespace fencegate
