#include <gateway/config/conninfo.hpp>

#include <gateway/config/nearest_name.hpp>

#include <libpq-fe.h>

#include <memory>
#include <set>
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

/// Returns where the part of the connection string begins that libpq's message quotes, at its quotation mark. Before
/// it, libpq may quote a single sign of the syntax that it expected, such as "=".
std::size_t find_quoted_part(const std::string& message) {
    auto begin = message.find('"');
    while (begin != std::string::npos && begin + 2 < message.size() && message[begin + 2] == '"' &&
           std::string_view("=:/]").find(message[begin + 1]) != std::string_view::npos)
        begin = message.find('"', begin + 3);
    return begin;
}

/// Returns libpq's message about a connection string. What it quotes of the string may be a part of a password, and is
/// replaced by ***; except the name of an option that resembles a known one.
std::string describe_parse_error(std::string message) {
    while (message.ends_with('\n'))
        message.pop_back();
    const auto begin = find_quoted_part(message);
    const auto end = message.rfind('"');  // the last one: the quoted part may contain quotation marks
    if (begin == std::string::npos || begin >= end) return message;
    const std::string quoted = message.substr(begin + 1, end - begin - 1);
    const bool is_option =
        message.starts_with("invalid connection option") || message.starts_with("invalid URI query parameter");
    const auto meant = is_option && quoted.size() >= 4 ? nearest_name(quoted, option_names()) : std::nullopt;
    if (meant) return message + "; did you mean " + *meant + "?";
    return message.replace(begin + 1, end - begin - 1, "***");
}

}  // namespace

bool is_connection_uri(const std::string& conninfo) {
    return conninfo.starts_with("postgresql://") || conninfo.starts_with("postgres://");
}

bool may_misread_password(const std::string& conninfo) {
    if (!is_connection_uri(conninfo)) return false;
    // libpq takes what precedes the first of these signs for user and password, if it is an "@". Another "@" before the
    // query may be part of the password.
    const auto end = conninfo.find_first_of("@/", conninfo.find("://") + 3);
    if (end == std::string::npos) return false;
    const auto rest = std::string_view(conninfo).substr(end + 1);
    return rest.substr(0, rest.find('?')).find('@') != std::string_view::npos;
}

std::optional<std::string> find_option(const std::string& conninfo, std::string_view keyword) {
    const options_ptr parsed(PQconninfoParse(conninfo.c_str(), nullptr), &PQconninfoFree);
    for (const auto* option = parsed.get(); option != nullptr && option->keyword != nullptr; ++option) {
        if (option->val != nullptr && option->keyword == keyword) return option->val;
    }
    return std::nullopt;
}

bool has_password(const std::string& conninfo) {
    return find_option(conninfo, "password").has_value();
}

std::optional<std::string> find_relative_file(const std::string& conninfo) {
    static const std::set<std::string_view> file_options{"passfile", "servicefile", "sslcert",    "sslkey",
                                                         "sslcrl",   "sslcrldir",   "sslrootcert"};
    const options_ptr parsed(PQconninfoParse(conninfo.c_str(), nullptr), &PQconninfoFree);
    for (const auto* option = parsed.get(); option != nullptr && option->keyword != nullptr; ++option) {
        const std::string_view name = option->keyword;
        const std::string_view value = option->val == nullptr ? "" : option->val;
        // `sslrootcert=system` and `sslkey=ENGINE:KEY` name no file.
        const bool names_no_file = value.empty() || (name == "sslrootcert" && value == "system") ||
                                   (name == "sslkey" && value.find(':') != std::string_view::npos);
        if (!file_options.contains(name) || names_no_file || value.starts_with('/')) continue;
        return std::string(name) +
               " has to be an absolute file name: libpq looks for a relative one in the "
               "working directory of the gateway, not in the folder of this file";
    }
    return std::nullopt;
}

std::optional<std::string> find_conninfo_fault(const std::string& conninfo) {
    char* error = nullptr;
    const options_ptr parsed(PQconninfoParse(conninfo.c_str(), &error), &PQconninfoFree);
    const std::unique_ptr<char, decltype(&PQfreemem)> message(error, &PQfreemem);
    if (!parsed) return message ? describe_parse_error(message.get()) : std::string("out of memory");
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
