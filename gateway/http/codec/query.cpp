#include <gateway/http/codec/query.hpp>

#include <gateway/runtime/text.hpp>

#include <lockcore/encoding.hpp>

#include <boost/url/params_encoded_view.hpp>
#include <boost/url/parse_query.hpp>
#include <boost/url/rfc/pchars.hpp>

#include <algorithm>
#include <charconv>

namespace fencegate::http {
namespace {

std::string decode_form(boost::urls::pct_string_view text) {
    // HTML forms and most clients write a space as +.
    boost::urls::encoding_opts options;
    options.space_as_plus = true;
    return text.decode(options);
}

/// Returns the query with every character percent-encoded that has to be: clients send quotation marks, braces and
/// non-ASCII letters unencoded. What is encoded already does not change.
std::string strictly_encoded(std::string_view query) {
    constexpr auto allowed = boost::urls::pchars + "/?%";
    std::string out;
    out.reserve(query.size());
    for (const char& c : query) {
        if (allowed(c))
            out += c;
        else
            out += runtime::percent_encode({&c, 1});
    }
    return out;
}

}  // namespace

std::vector<std::pair<std::string, std::string>> query_parameters(std::string_view query, fault_list& faults) {
    std::vector<std::pair<std::string, std::string>> out;
    if (query.empty()) return out;
    const auto strict = strictly_encoded(query);
    const auto parsed = boost::urls::parse_query(strict);
    if (!parsed) {
        faults.add("query", "is not a well-formed query string");
        return out;
    }
    for (const auto& parameter : *parsed) {
        if (parameter.key.empty() && !parameter.has_value) continue;  // from a doubled &
        if (out.size() == parameters_max) {
            faults.add("query", "has more than 64 parameters");
            return out;
        }
        std::string name = decode_form(parameter.key);
        std::string value = parameter.has_value ? decode_form(parameter.value) : std::string();
        if (name.find('\0') != std::string::npos || value.find('\0') != std::string::npos)
            faults.add(name, "contains U+0000, which PostgreSQL text cannot store");
        if (!lockcore::is_utf8(name)) {
            faults.add("query", "has a parameter whose name is not UTF-8");
            continue;
        }
        if (!lockcore::is_utf8(value)) {
            faults.add(std::move(name), "is not UTF-8");
            continue;
        }
        out.emplace_back(std::move(name), std::move(value));
    }
    return out;
}

query_reader::query_reader(std::string_view query, std::initializer_list<std::string_view> known, fault_list& faults)
    : faults_(faults) {
    for (auto& [name, value] : query_parameters(query, faults)) {
        if (std::ranges::find(known, std::string_view(name)) == known.end()) {
            faults_.add(std::move(name), describe_unknown_name("parameter", known));
        } else if (text(name)) {
            faults_.add(std::move(name), "is given more than once");
        } else {
            parameters_.emplace_back(std::move(name), std::move(value));
        }
    }
}

std::optional<std::string> query_reader::text(std::string_view name) const {
    for (const auto& [key, value] : parameters_) {
        if (key == name) return value;
    }
    return std::nullopt;
}

std::optional<std::int64_t> query_reader::integer(std::string_view name, integer_bounds bounds) const {
    const auto given = text(name);
    if (!given) return std::nullopt;
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(given->data(), given->data() + given->size(), value);
    if (error == std::errc{} && end == given->data() + given->size() && value >= bounds.lowest &&
        value <= bounds.highest)
        return value;
    faults_.add(std::string(name),
                "has to be an integer from " + std::to_string(bounds.lowest) + " to " + std::to_string(bounds.highest));
    return std::nullopt;
}

std::optional<bool> query_reader::boolean(std::string_view name) const {
    const auto given = text(name);
    if (!given) return std::nullopt;
    if (*given == "true") return true;
    if (*given == "false") return false;
    faults_.add(std::string(name), "has to be true or false");
    return std::nullopt;
}

}  // namespace fencegate::http
