#include <gateway/cli/client.hpp>

#include <gateway/cli/fields.hpp>
#include <gateway/config/pem.hpp>
#include <gateway/config/secrets.hpp>
#include <gateway/domain/exact_number.hpp>

#include <boost/asio/co_spawn.hpp>
#include <boost/json.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <exception>
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
/// A gateway sends a heartbeat every 10 s: a stream that is silent for longer than this is broken.
constexpr std::chrono::milliseconds silence_max{30'000};

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

/// The state of an event stream, kept from one connection to the next.
struct stream_state {
    http_request request;
    std::chrono::milliseconds timeout{};
    const std::function<bool(const stream_event&)>& handle_event;
    http_response head;
    bool connected = false;  ///< The present connection delivered a stream.
    bool wanted = true;      ///< What `handle_event` returned last.
};

/// Opens one connection and handles its events until it ends. Throws gateway_unreachable.
boost::asio::awaitable<void> read_event_stream(http_exchange& exchange, stream_state& state) {
    state.connected = false;
    state.head = co_await exchange.send(state.request, state.timeout);
    state.connected = state.head.is_event_stream();
    while (state.connected && state.wanted) {
        const auto event = co_await exchange.next_event(silence_max);
        if (!exchange.last_event_id().empty()) state.request.last_event_id = exchange.last_event_id();
        if (!event) co_return;
        state.wanted = state.handle_event(*event);
    }
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

http_response client::call(http_request request, std::chrono::milliseconds timeout) const {
    return run(std::move(request), timeout, nullptr);
}

void client::download(std::string_view target, std::string_view accept,
                      std::function<void(std::string_view)> handle_piece) const {
    http_request request;
    request.target = target;
    request.accept = accept;
    const http_response response = run(std::move(request), timeout_, std::move(handle_piece));
    if (!response.is_success()) throw gateway_refusal(response);
}

boost::asio::awaitable<http_response> client::exchange_once(boost::asio::io_context& io, http_request request,
                                                            std::chrono::milliseconds timeout,
                                                            std::function<void(std::string_view)> handle_piece) const {
    const std::size_t asked = current_;
    http_exchange connection(io, address(), identity_);
    add_caller(request);
    try {
        http_response response = co_await connection.download(std::move(request), timeout, std::move(handle_piece));
        if (is_failure_of_gateway(response.status)) leave_gateway(asked);
        co_return response;
    } catch (const gateway_unreachable&) {
        leave_gateway(asked);
        throw;
    }
}

boost::asio::awaitable<http_response> client::exchange(boost::asio::io_context& io, http_request request,
                                                       std::chrono::milliseconds timeout,
                                                       std::function<void(std::string_view)> handle_piece) const {
    bool begun = false;  // pieces of an answer that was cut off can't be taken back
    std::function<void(std::string_view)> handle;
    if (handle_piece) {
        handle = [&](std::string_view piece) {
            begun = true;
            handle_piece(piece);
        };
    }
    for (std::size_t attempt = 1;; ++attempt) {
        const bool is_last = attempt == gateways();
        try {
            http_response response = co_await exchange_once(io, request, timeout, handle);
            if (is_last || !is_failure_of_gateway(response.status)) co_return response;
        } catch (const gateway_unreachable&) {
            if (is_last || begun) throw;
        }
    }
}

boost::asio::awaitable<http_response> client::send(boost::asio::io_context& io, http_request request,
                                                   std::chrono::milliseconds timeout) const {
    return exchange(io, std::move(request), timeout, nullptr);
}

boost::asio::awaitable<http_response> client::send_once(boost::asio::io_context& io, http_request request,
                                                        std::chrono::milliseconds timeout) const {
    return exchange_once(io, std::move(request), timeout, nullptr);
}

http_response client::run(http_request request, std::chrono::milliseconds timeout,
                          std::function<void(std::string_view)> handle_piece) const {
    boost::asio::io_context io(1);
    http_response response;
    boost::asio::co_spawn(io, exchange(io, std::move(request), timeout, std::move(handle_piece)),
                          [&](std::exception_ptr failed, http_response received) {
                              if (failed) std::rethrow_exception(failed);
                              response = std::move(received);
                              io.stop();
                          });
    io.run();
    return response;
}

json::value client::get(std::string_view target) const {
    http_request request;
    request.target = target;
    const http_response response = call(std::move(request));
    if (!response.is_success()) throw gateway_refusal(response);
    return parse(response);
}

void client::follow_events(std::string_view target,
                           const std::function<bool(const stream_event&)>& handle_event) const {
    stream_state state{{}, timeout_, handle_event, {}};
    state.request.target = target;
    state.request.accept = "text/event-stream";
    add_caller(state.request);
    auto pause = reconnect_pause_first;
    bool answered = false;
    for (std::size_t attempt = 1;; ++attempt) {
        const bool others_left = !answered && attempt < gateways();
        boost::asio::io_context io(1);
        http_exchange exchange(io, address(), identity_);
        try {
            boost::asio::co_spawn(io, read_event_stream(exchange, state), [&io](std::exception_ptr failed) {
                if (failed) std::rethrow_exception(failed);
                io.stop();
            });
            io.run();
            const bool temporary = state.head.status >= 500 || state.head.status == 429;
            const bool may_repeat = answered ? temporary : others_left && is_failure_of_gateway(state.head.status);
            if (!state.connected && !may_repeat) throw gateway_refusal(state.head);
            answered = answered || state.connected;
        } catch (const gateway_unreachable&) {
            if (!answered && !others_left) throw;
        }
        if (!state.wanted) return;
        leave_gateway(current_);
        if (!answered) continue;
        if (state.connected) {
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
