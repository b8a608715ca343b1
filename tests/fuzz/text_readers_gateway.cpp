// Texts of callers and operators: headers, queries, times, and the key sets of issuers.
#include "text_readers.hpp"

#include "fuzz.hpp"

#include <gateway/api/tables/answer_form.hpp>
#include <gateway/config/authority.hpp>
#include <gateway/config/token_keys.hpp>
#include <gateway/http/codec/fields.hpp>
#include <gateway/http/codec/header_values.hpp>
#include <gateway/http/codec/json_io.hpp>
#include <gateway/runtime/rfc3339.hpp>
#include <gateway/runtime/text.hpp>

#include <array>
#include <string>
#include <vector>

namespace fencegate::fuzz {

// accept

void check_accept(std::string_view input) {
    constexpr std::array<std::string_view, 3> offers{"application/json", "text/html", "text/event-stream"};
    const auto chosen = http::preferred_type(input, offers);
    require(!chosen || *chosen < offers.size(), "the choice is one of the offers");
    const std::string padded = " \t" + std::string(input) + "\t ";
    require(http::preferred_type(padded, offers) == chosen, "space around the header does not count");
    for (const std::string_view only : offers) {
        const auto one = http::preferred_type(input, {only});
        if (chosen && only == offers[*chosen]) require(one.has_value(), "the chosen type is acceptable by itself");
        if (one) require(chosen.has_value(), "with an acceptable type among the offers, one is chosen");
    }

    const std::string charset = http::find_foreign_charset(input);
    require(charset.size() <= input.size() * 2 + 2, "the names of charsets are those of the header");
    require(http::is_media_type(input, "application/json") ==
                    http::is_media_type(std::string(input) + ";a=b", "application/json") ||
                input.find('"') != std::string_view::npos,
            "a parameter does not change the media type");

    for (const auto& preference : http::split_preferences(input)) {
        require(preference.text.starts_with(preference.name), "a preference begins with its name");
        require(preference.text.size() <= input.size() + 1, "a preference is a part of the header");
    }
    http::request request;
    request.headers.emplace_back("prefer", std::string(input));
    const auto applied = api::parse_preferences(request).applied;
    request.headers.back().second = applied;
    require(api::parse_preferences(request).applied == applied, "the applied preferences are understood as they were");
}

// authority

void check_authority(std::string_view input) {
    const auto read = parse_authority(input);
    if (!read) return;
    require(!read->host.empty() && read->host.size() <= 255, "a host is not empty and bounded");
    require(read->host.find_first_of("/@?#[]% \t\r\n") == std::string::npos,
            "a host has no sign that begins another part of a URL");
    const bool is_ipv6 = read->host.find(':') != std::string::npos;
    std::string written = is_ipv6 ? "[" + read->host + "]" : read->host;
    if (read->port) written += ":" + std::to_string(*read->port);
    require(parse_authority(written) == read, "an authority that was written is read as it was");
    is_loopback_host(read->host);
}

// json_pointer

namespace {

/// Reads a pointer as RFC 6901 says.
std::vector<std::string> read_pointer(std::string_view pointer) {
    std::vector<std::string> keys;
    if (pointer.empty()) return keys;
    require(pointer.front() == '/', "a pointer begins with a slash");
    keys.emplace_back();
    for (std::size_t i = 1; i < pointer.size(); ++i) {
        if (pointer[i] == '/') {
            keys.emplace_back();
        } else if (pointer[i] == '~') {
            ++i;
            require(i < pointer.size() && (pointer[i] == '0' || pointer[i] == '1'), "a tilde begins an escape");
            keys.back() += pointer[i] == '0' ? '~' : '/';
        } else {
            keys.back() += pointer[i];
        }
    }
    return keys;
}

}  // namespace

void check_json_pointer(std::string_view input) {
    std::vector<std::string> keys;
    std::string pointer;
    for (std::string_view rest = input; !rest.empty();) {
        keys.emplace_back(take_line(rest));
        pointer = http::child_pointer(pointer, keys.back());
        if (keys.back().size() % 3 != 0) continue;
        pointer = http::child_pointer(pointer, keys.size());
        keys.push_back(std::to_string(keys.size()));
    }
    require(read_pointer(pointer) == keys, "a pointer names the keys of which it was made");
    const std::string shortened = http::shorten_pointer(pointer);
    constexpr std::string_view ellipsis = "…";
    require(shortened.size() <= 1024 + ellipsis.size(), "a shortened pointer is bounded");
    const bool is_cut = shortened != pointer;
    require(is_cut == (pointer.size() > 1024), "only a long pointer is shortened");
    if (is_cut)
        require(pointer.starts_with(shortened.substr(0, shortened.size() - ellipsis.size())),
                "a shortened pointer is a beginning");
}

// query

void check_query(std::string_view input) {
    http::fault_list faults;
    const auto parameters = http::query_parameters(input, faults);
    require(parameters.size() <= http::parameters_max, "the number of parameters is bounded");
    if (faults.empty()) {
        std::string written;
        for (const auto& [name, value] : parameters) {
            if (!written.empty()) written += '&';
            written += runtime::percent_encode(name) + '=' + runtime::percent_encode(value);
            require((name + value).find('\0') == std::string::npos, "no parameter contains U+0000");
        }
        require(http::query_parameters(written, faults) == parameters && faults.empty(),
                "parameters that were written are read as they were");
    }
    http::fault_list faults_of_reader;
    const http::query_reader reader(input, {"a", "limit", "wait"}, faults_of_reader);
    const auto limit = reader.integer("limit", {.lowest = -5, .highest = 1000});
    require(!limit || (*limit >= -5 && *limit <= 1000), "a number is within its bounds");
    reader.boolean("wait");
    require(std::move(faults_of_reader).to_failure().errors.size() <= field_errors_max,
            "the number of faults is bounded");
}

// rfc3339

void check_rfc3339(std::string_view input) {
    const auto time = runtime::parse_rfc3339(input);
    if (!time) return;
    const auto milliseconds = std::chrono::floor<std::chrono::milliseconds>(*time);
    const std::string written = runtime::to_rfc3339(*time);
    require(written.size() == std::string_view("2026-11-21T10:00:09.894Z").size(), "a time has a fixed form");
    // The offset of a time in the first or last year that is accepted can move it into another year.
    const bool is_accepted_year = written >= "1678" && written < "2262";
    require(!is_accepted_year || runtime::parse_rfc3339(written) == milliseconds,
            "a time that was written is read as it was, to the millisecond");
    require(runtime::to_rfc3339(milliseconds) == written, "a time is truncated to milliseconds");
    require(runtime::to_http_date(*time).size() == std::string_view("Sat, 21 Nov 2026 10:00:09 GMT").size(),
            "a date has a fixed form");
}

// token_keys

void check_token_keys(std::string_view input) {
    std::vector<std::string> faults;
    const auto set = token_key_set::parse(input, faults);
    require(faults.size() <= token_key_set::keys_max + 1, "the number of faults is bounded");
    if (!set) return require(!faults.empty(), "a refusal says why");
    require(set->keys().size() <= token_key_set::keys_max, "the number of keys is bounded");
    require(!set->keys().empty() || !faults.empty(), "a set without keys is a fault");
    for (const token_key& key : set->keys()) {
        require(key.public_key != nullptr, "a key that is kept can be used");
        require(!key.id.empty() && key.id.size() <= token_key_set::id_bytes_max, "the size of a kid is bounded");
        require(set->find(key.id) == &key, "a kid names one key");
    }
}

}  // namespace fencegate::fuzz
