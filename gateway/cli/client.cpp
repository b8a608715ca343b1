#include <gateway/cli/client.hpp>

#include <gateway/cli/answers.hpp>
#include <gateway/config/pem.hpp>
#include <gateway/config/secrets.hpp>
#include <gateway/domain/exact_number.hpp>

#include <boost/json.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <iostream>
#include <thread>
#include <utility>

namespace fencegate::cli {
namespace {

namespace json = boost::json;

constexpr std::size_t page_max = 1'000;

/// The pause between two attempts to reconnect to a stream doubles from the first to the longest.
constexpr std::chrono::milliseconds reconnect_pause_first{500};
constexpr std::chrono::milliseconds reconnect_pause_max{15'000};
constexpr std::size_t pem_file_bytes_max = 8 << 20;

std::string read_key(const std::filesystem::path& file) {
    const char* from_environment = std::getenv("FENCEGATE_API_KEY");
    std::string key = from_environment == nullptr ? "" : from_environment;
    if (!file.empty()) {
        std::string fault;
        auto read = read_secret(file, fault);
        if (!read) throw usage_error("--api-key-file: " + fault);
        key = std::move(*read);
    }
    if (!std::ranges::all_of(key, [](char c) { return c > 0x20 && c < 0x7f; }))
        throw usage_error("the API key contains a character that no key can contain, such as a space or a line end");
    return key;
}

/// Reads the certificates or keys that an option names. Reads the file once, because it may be a pipe. Throws
/// usage_error.
std::string read_pem(const std::string& option, const std::filesystem::path& file) {
    std::string fault;
    auto text = read_text_file(file, pem_file_bytes_max, fault);
    if (!text) throw usage_error(option + ": " + fault);
    return std::move(*text);
}

std::string read_pem_certificates(const std::string& option, const std::filesystem::path& file) {
    std::string text = read_pem(option, file);
    if (read_certificates(text).empty())
        throw usage_error(option + ": " + file.string() + " contains no readable PEM certificate");
    return text;
}

/// Throws usage_error.
tls_identity read_identity(const gateway_options& options) {
    tls_identity out;
    if (!options.cacert.empty()) out.authorities = read_pem_certificates("--cacert", options.cacert);
    if (options.cert.empty()) {
        if (!options.key.empty()) throw usage_error("--key: needs --cert, the certificate of the key");
        return out;
    }
    out.certificate = read_pem_certificates("--cert", options.cert);
    const bool key_in_same_file = options.key.empty() || options.key == options.cert;
    out.key = key_in_same_file ? out.certificate : read_pem("--key", options.key);
    bool encrypted = false;
    const pkey_handle key = read_private_key(out.key, &encrypted);
    const std::string source = key_in_same_file ? "--cert: " + options.cert.string() : "--key: " + options.key.string();
    if (encrypted) throw usage_error(source + " contains an encrypted key, and there is no passphrase for it");
    if (!key) throw usage_error(source + " contains no readable PEM key");
    if (X509_check_private_key(read_certificates(out.certificate).front().get(), key.get()) != 1)
        throw usage_error(source + " contains another key than that of the first certificate");
    return out;
}

json::value parse(const http_response& response) {
    json::error_code ec;
    json::value out = json::parse(response.body, ec);
    if (ec || !has_finite_numbers(out)) throw gateway_refusal(response);
    return out;
}

/// Returns the option or argument that sets a field of the request, for an error of the gateway that names the field.
std::string option_name(std::string_view pointer) {
    constexpr std::array<std::pair<std::string_view, std::string_view>, 18> options{{
        {"/ttl_ms", "--ttl, in milliseconds,"},
        {"/wait_ms", "--wait, in milliseconds,"},
        {"/max_hold_ms", "--max-hold, in milliseconds,"},
        {"/owner", "--owner"},
        {"/resource", "RESOURCE"},
        {"/resources", "RESOURCE"},
        {"resource", "--resource"},
        {"resource_prefix", "--prefix"},
        {"event", "--event"},
        {"owner", "--owner"},
        {"principal", "--principal"},
        {"token_min", "--token-min"},
        {"token_max", "--token-max"},
        {"trace_id", "--trace-id"},
        {"write_id", "--write-id"},
        {"from", "--from"},
        {"to", "--to"},
        {"limit", "--limit"},
    }};
    constexpr std::string_view list_prefix = "/resources/";
    if (pointer.starts_with(list_prefix)) {
        std::size_t index = 0;
        const std::string_view digits = pointer.substr(list_prefix.size());
        std::from_chars(digits.data(), digits.data() + digits.size(), index);
        return "RESOURCE " + std::to_string(index + 1);
    }
    const auto* const found =
        std::ranges::find(options, pointer, &std::pair<std::string_view, std::string_view>::first);
    return std::string(found == options.end() ? pointer : found->second);
}

/// Returns whether another gateway may be able to answer.
bool is_failure_of_gateway(unsigned status) {
    return status == 502 || status == 503 || status == 504;
}

}  // namespace

std::string describe(const http_response& problem) {
    json::error_code ec;
    const json::value parsed = json::parse(problem.body, ec);
    const json::object* document = ec ? nullptr : parsed.if_object();
    if (document == nullptr || get_text(*document, "title").empty())
        return "the answer is not from a gateway (status " + std::to_string(problem.status) + ", " + problem.type + ")";
    std::string out = get_text(*document, "title");
    const json::value* errors = document->if_contains("errors");
    if (errors != nullptr && errors->is_array()) {
        for (const auto& fault : errors->get_array()) {
            if (const auto* error = fault.if_object())
                out += "\n  " + option_name(get_text(*error, "pointer")) + " " + get_text(*error, "detail");
        }
    } else if (const auto detail = get_text(*document, "detail"); !detail.empty()) {
        out += ": " + detail;
    }
    if (problem.status == 401) out += "\n  the key of this command comes from FENCEGATE_API_KEY or --api-key-file";
    return out + "\n  request_id " + get_text(*document, "request_id");
}

gateway_refusal::gateway_refusal(const http_response& response)
    : std::runtime_error(describe(response)), status(response.status) {}

client::client(const gateway_options& options)
    : api_key_(read_key(options.api_key_file)),
      cell_(options.cell ? std::to_string(*options.cell) : ""),
      timeout_(options.timeout) {
    std::string_view left = options.url;
    for (bool more = true; more;) {
        const auto comma = left.find(',');
        const std::string url(left.substr(0, comma));
        more = comma != std::string_view::npos;
        if (more) left.remove_prefix(comma + 1);
        try {
            addresses_.push_back(parse_address(url));
        } catch (const std::invalid_argument& e) {
            // Where the URL has user information or a query, it may contain a password.
            const bool may_be_secret = options.url.find_first_of("@?#") != std::string::npos;
            throw usage_error(options.url_source + ": " + (may_be_secret ? "the URL" : url) + " " + e.what());
        }
    }
    if (std::ranges::any_of(addresses_, &gateway_address::tls)) identity_ = read_identity(options);
}

void client::add_caller(http_request& request) const {
    request.api_key = api_key_;
    request.cell = cell_;
}

void client::leave_gateway(std::size_t failed) const {
    current_.compare_exchange_strong(failed, (failed + 1) % addresses_.size());
}

http_response client::call_once(http_request request, const transfer_options& options) const {
    const std::size_t asked = current_;
    add_caller(request);
    try {
        http_response response = send_request(addresses_[asked], identity_, request, options);
        if (is_failure_of_gateway(response.status)) leave_gateway(asked);
        return response;
    } catch (const gateway_unreachable&) {
        if (!options.stop.stop_requested()) leave_gateway(asked);
        throw;
    }
}

http_response client::call(const http_request& request) const {
    return call(request, {.timeout = timeout_});
}

http_response client::call(http_request request, transfer_options options) const {
    bool begun = false;  // pieces of an answer that was cut off can't be taken back
    if (options.handle_piece) {
        options.handle_piece = [&begun, handle_piece = options.handle_piece](std::string_view piece) {
            begun = true;
            handle_piece(piece);
        };
    }
    for (std::size_t attempt = 1;; ++attempt) {
        const bool is_last = attempt == gateways();
        try {
            http_response response = call_once(request, options);
            if (is_last || !is_failure_of_gateway(response.status)) return response;
        } catch (const gateway_unreachable&) {
            if (is_last || begun || options.stop.stop_requested()) throw;
        }
    }
}

void client::download(std::string_view target, std::string_view accept,
                      const std::function<void(std::string_view)>& handle_piece) const {
    http_request request;
    request.target = target;
    request.accept = accept;
    const http_response response = call(request, {.timeout = timeout_, .handle_piece = handle_piece});
    if (!response.is_success()) throw gateway_refusal(response);
}

json::value client::get(std::string_view target) const {
    http_request request;
    request.target = target;
    const http_response response = call(std::move(request));
    if (!response.is_success()) throw gateway_refusal(response);
    return parse(response);
}

void client::follow_events(std::string_view target, const std::function<bool(const stream_event&)>& handle_event,
                           const std::string& after) const {
    http_request request;
    request.last_event_id = after;
    request.target = target;
    request.accept = "text/event-stream";
    add_caller(request);
    bool wanted = true;
    transfer_options options{.timeout = timeout_};
    options.handle_event = [&](const stream_event& event) { return wanted = handle_event(event); };
    auto pause = reconnect_pause_first;
    bool answered = false;
    for (std::size_t attempt = 1;; ++attempt) {
        const bool others_left = !answered && attempt < gateways();
        bool connected = false;
        try {
            const http_response response = send_request(address(), identity_, request, options);
            connected = response.is_event_stream();
            if (!response.last_event_id.empty()) request.last_event_id = response.last_event_id;
            const bool temporary = response.status >= 500 || response.status == 429;
            const bool may_repeat = answered ? temporary : others_left && is_failure_of_gateway(response.status);
            if (!connected && !may_repeat) throw gateway_refusal(response);
            answered = answered || connected;
        } catch (const gateway_unreachable&) {
            if (!answered && !others_left) throw;
        }
        if (!wanted) return;
        leave_gateway(current_);
        if (!answered) continue;
        if (connected) {
            std::cerr << "(the connection broke; trying again)\n" << std::flush;
            pause = reconnect_pause_first;
        }
        std::this_thread::sleep_for(pause);
        pause = std::min(2 * pause, reconnect_pause_max);
    }
}

bool client::read_pages(std::string_view path, std::vector<std::pair<std::string, std::string>> parameters,
                        std::size_t limit, const std::function<void(const json::array&)>& handle_page) const {
    const auto limit_index = parameters.size();
    parameters.emplace_back("limit", "");
    const auto cursor_index = parameters.size();
    parameters.emplace_back("cursor", "");
    for (std::size_t left = limit; left > 0;) {
        parameters[limit_index].second = std::to_string(std::min(left, page_max));
        const json::value page = get(make_target(path, parameters));
        const json::array& items = page.at("items").as_array();
        handle_page(items);
        left -= std::min(left, items.size());
        const json::value& next = page.at("next_cursor");
        if (!next.is_string()) return false;
        parameters[cursor_index].second = std::string(next.get_string());
    }
    return true;
}

}  // namespace fencegate::cli
