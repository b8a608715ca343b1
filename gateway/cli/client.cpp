#include <gateway/cli/client.hpp>

#include <gateway/cli/fields.hpp>
#include <gateway/config/secrets.hpp>

#include <boost/asio/co_spawn.hpp>
#include <boost/json.hpp>

#include <openssl/pem.h>
#include <openssl/x509.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <iostream>
#include <thread>
#include <utility>

namespace fencegate::cli {
namespace {

namespace json = boost::json;

constexpr std::size_t page_max = 1'000;

/// Between two attempts to open a stream again: doubled each time.
constexpr std::chrono::milliseconds again_first{500};
constexpr std::chrono::milliseconds again_most{15'000};
constexpr std::size_t authorities_bytes_max = 8 << 20;
/// A gateway gives a sign of life every 10 s: a stream that is silent for so long is dead.
constexpr std::chrono::milliseconds silence_max{30'000};

std::string read_key(const std::filesystem::path& file) {
    std::string fault;
    const char* given = std::getenv("FENCEGATE_API_KEY");
    std::string key = given == nullptr ? "" : given;
    if (!file.empty()) {
        auto read = read_secret(file, fault);
        if (!read) throw usage_error("--api-key-file: " + fault);
        key = std::move(*read);
    }
    if (!std::ranges::all_of(key, [](char c) { return c > 0x20 && c < 0x7f; }))
        throw usage_error("the API key has a character that no key has (a blank, a line end?)");
    return key;
}

/// The certificates of a file, read once: it may be a pipe. Throws usage_error.
std::string read_authorities(const std::filesystem::path& file) {
    std::ifstream in(file, std::ios::binary);
    std::string text(authorities_bytes_max + 1, '\0');
    in.read(text.data(), static_cast<std::streamsize>(text.size()));
    text.resize(static_cast<std::size_t>(in.gcount()));
    if (text.size() > authorities_bytes_max) throw usage_error("--cacert: " + file.string() + " is too long");
    const std::unique_ptr<BIO, decltype(&BIO_free)> memory(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())),
                                                           &BIO_free);
    const std::unique_ptr<X509, decltype(&X509_free)> first(PEM_read_bio_X509(memory.get(), nullptr, nullptr, nullptr),
                                                            &X509_free);
    if (!first) throw usage_error("--cacert: " + file.string() + " has no certificates that can be read");
    return text;
}

/// A stream of events, over as many connections as it takes.
struct stream_state {
    request what;
    std::chrono::milliseconds within{};
    const std::function<bool(const stream_event&)>& take;
    answer head;
    bool streamed = false;  ///< This connection did.
    bool wanted = true;
};

/// One connection of it. Throws unreachable.
boost::asio::awaitable<void> follow_once(http_exchange& from, stream_state& state) {
    state.streamed = false;
    state.head = co_await from.send(state.what, state.within);
    state.streamed = state.head.streams();
    while (state.streamed && state.wanted) {
        const auto event = co_await from.next_event(silence_max);
        if (!from.last_event_id().empty()) state.what.last_event_id = from.last_event_id();
        if (!event) co_return;
        state.wanted = state.take(*event);
    }
}

json::value parse(const answer& got) {
    json::error_code ec;
    json::value out = json::parse(got.body, ec);
    if (ec) throw refused(got);
    return out;
}

/// The option or argument by which the user gave the field of a request that the gateway names.
std::string option_of(std::string_view pointer) {
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
    constexpr std::string_view one_of_several = "/resources/";
    if (pointer.starts_with(one_of_several)) {
        std::size_t index = 0;
        const std::string_view digits = pointer.substr(one_of_several.size());
        std::from_chars(digits.data(), digits.data() + digits.size(), index);
        return "RESOURCE " + std::to_string(index + 1);
    }
    const auto* const found =
        std::ranges::find(options, pointer, &std::pair<std::string_view, std::string_view>::first);
    return std::string(found == options.end() ? pointer : found->second);
}

}  // namespace

std::string describe(const answer& problem) {
    json::error_code ec;
    const json::value parsed = json::parse(problem.body, ec);
    const json::object* document = ec ? nullptr : parsed.if_object();
    if (document == nullptr || text(*document, "title").empty())
        return "an answer that is none of a gateway (" + std::to_string(problem.status) + " " + problem.type + ")";
    std::string out = text(*document, "title");
    const json::value* errors = document->if_contains("errors");
    if (errors != nullptr && errors->is_array()) {
        for (const auto& fault : errors->get_array()) {
            if (const auto* one = fault.if_object())
                out += "\n  " + option_of(text(*one, "pointer")) + " " + text(*one, "detail");
        }
    } else if (const auto detail = text(*document, "detail"); !detail.empty()) {
        out += ": " + detail;
    }
    return out + "\n  request_id " + text(*document, "request_id");
}

refused::refused(const answer& what) : std::runtime_error(describe(what)), status(what.status) {}

client::client(const gateway_options& given) : api_key_(read_key(given.api_key_file)), timeout_(given.timeout) {
    try {
        at_ = parse_address(given.url);
    } catch (const std::invalid_argument& e) {
        throw usage_error("--url: " + given.url + " " + e.what());
    }
    if (at_.tls && !given.cacert.empty()) authorities_ = read_authorities(given.cacert);
}

answer client::call(request what) const {
    boost::asio::io_context io(1);
    http_exchange to(io, at_, authorities_);
    what.api_key = api_key_;
    answer got;
    boost::asio::co_spawn(io, to.send(std::move(what), timeout_), [&](std::exception_ptr failed, answer a) {
        if (failed) std::rethrow_exception(failed);
        got = std::move(a);
        io.stop();
    });
    io.run();
    return got;
}

json::value client::get(std::string_view target) const {
    request what;
    what.target = target;
    const answer got = call(std::move(what));
    if (!got.ok()) throw refused(got);
    return parse(got);
}

void client::follow(std::string_view target, const std::function<bool(const stream_event&)>& take) const {
    stream_state state{{}, timeout_, take, {}};
    state.what.target = target;
    state.what.accept = "text/event-stream";
    state.what.api_key = api_key_;
    auto pause = again_first;
    for (bool first = true;; first = false) {
        boost::asio::io_context io(1);
        http_exchange from(io, at_, authorities_);
        try {
            boost::asio::co_spawn(io, follow_once(from, state), [&io](std::exception_ptr failed) {
                if (failed) std::rethrow_exception(failed);
                io.stop();
            });
            io.run();
            const bool passes = state.head.status >= 500 || state.head.status == 429;
            if (!state.streamed && (first || !passes)) throw refused(state.head);
        } catch (const unreachable&) {
            if (first) throw;
        }
        if (!state.wanted) return;
        if (state.streamed) {
            std::cerr << "(the connection broke; trying again)\n" << std::flush;
            pause = again_first;
        }
        std::this_thread::sleep_for(pause);
        pause = std::min(2 * pause, again_most);
    }
}

bool client::pages(std::string_view path, std::vector<std::pair<std::string, std::string>> parameters,
                   std::size_t limit, const std::function<void(const json::array&)>& take) const {
    const auto first = parameters.size();
    parameters.emplace_back("limit", "");
    parameters.emplace_back("cursor", "");
    for (std::size_t left = limit; left > 0;) {
        parameters[first].second = std::to_string(std::min(left, page_max));
        const json::value page = get(target_of(path, parameters));
        const json::array& items = page.at("items").as_array();
        take(items);
        left -= std::min(left, items.size());
        const json::value& next = page.at("next_cursor");
        if (!next.is_string()) return false;
        parameters[first + 1].second = std::string(next.get_string());
    }
    return true;
}

}  // namespace fencegate::cli
