// What a hostile gateway answers to the commands of the CLI: JSON, CSV, problem documents, metrics and event streams.
// The first line has the words that select the command and its options; then come the answers in the order of the
// requests, each after a line `--- STATUS MEDIA-TYPE`. A request without an answer finds no gateway.
#include "fuzz.hpp"

#include <gateway/cli/client.hpp>
#include <gateway/cli/job_control.hpp>
#include <gateway/cli/listings.hpp>
#include <gateway/cli/lock.hpp>
#include <gateway/runtime/text.hpp>

#include <lockcore/encoding.hpp>

#include <boost/json/parse.hpp>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <iostream>
#include <mutex>
#include <sstream>

namespace fencegate::fuzz {
namespace {

constexpr std::string_view separator = "--- ";

/// The answers that are left, and what the commands did with those before.
struct gateway_script {
    std::string_view words;
    std::string_view left;
    bool on_terminal = false;
    bool has_json_lines = false;  ///< The command writes JSON lines of its own; `follow` writes what the gateway sent.
    bool holds = false;           ///< The command holds a lease.
    bool ends_with_stream = false;  ///< A stream that ends would be opened again after a pause.
    std::string downloaded;

    bool has(std::string_view word) const { return words.find(word) != std::string_view::npos; }
};
gateway_script script;

/// The stream has ended, and the command would wait before it opens it again.
struct stream_ended : std::exception {};

/// Removes the next answer. Out: empty if none is left.
std::optional<cli::http_response> take_answer() {
    if (!script.left.starts_with(separator)) return std::nullopt;
    script.left.remove_prefix(separator.size());
    std::string_view head = take_line(script.left);
    const std::string_view status = take_until(head, ' ');
    cli::http_response out;
    std::from_chars(status.data(), status.data() + status.size(), out.status);
    out.type = head;
    const std::size_t end = script.left.find("\n" + std::string(separator));
    out.body = script.left.substr(0, end);
    script.left = end == std::string_view::npos ? std::string_view() : script.left.substr(end + 1);
    return out;
}

/// Removes the next piece of a body; its size depends on its bytes.
std::string_view take_piece(std::string_view& body) {
    const std::size_t size = std::min<std::size_t>(1 + static_cast<unsigned char>(body.front()) % 61U, body.size());
    const std::string_view out = body.substr(0, size);
    body.remove_prefix(size);
    return out;
}

/// Checks that a header or the first line of a request has nothing that ends it.
void check_line(std::string_view text) {
    require(std::ranges::none_of(text, [](unsigned char c) { return c < 0x20 || c == 0x7f; }),
            "what a gateway sent adds no line to a request");
}

void run_command() {
    const cli::gateway_options gateway;
    cli::lock_options lock;
    lock.resources = {"jobs/a"};
    lock.wait = std::chrono::milliseconds(0);
    lock.exit_on_loss = true;
    lock.elect = script.has("elect");
    lock.seal = script.has("seal");
    if (script.has("tick")) lock.every = std::chrono::minutes(5);
    if (script.has("keep")) lock.at_least = std::chrono::minutes(5);
    if (script.has("max")) lock.max_hold = std::chrono::hours(1);
    const bool json = script.has("json");
    const bool is_listing =
        script.has("status") || script.has("leases") || (script.has("history") && !script.has("resources"));
    script.has_json_lines = json && is_listing;
    if (script.has("status")) {
        cli::show_status(cli::client(gateway), json);
    } else if (script.has("leases")) {
        cli::list_leases(cli::client(gateway), {}, json);
    } else if (script.has("resources")) {
        cli::list_resources(cli::client(gateway), "");
    } else if (script.has("history")) {
        cli::list_history(cli::client(gateway), {}, json);
    } else if (script.has("csv")) {
        cli::print_csv(cli::client(gateway), "/v1/history", {});
    } else if (script.has("follow")) {
        script.ends_with_stream = true;
        cli::follow_history(cli::client(gateway), {}, json);
    } else if (script.has("lock") || lock.elect) {
        script.holds = true;
        script.ends_with_stream = true;
        cli::run_locked(gateway, lock);
    }
}

/// Checks that nothing in a text controls a terminal or changes the direction of writing.
void check_for_terminal(std::string_view text) {
    require(std::ranges::none_of(text, [](unsigned char c) { return (c < 0x20 && c != '\n') || c == 0x7f; }),
            "a terminal gets no control character");
    require(lockcore::is_utf8(text), "a terminal gets UTF-8");
    for (std::size_t at = 0; at + 1 < text.size(); ++at) {
        const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(i < text.size() ? text[i] : 0); };
        const unsigned pair = byte(at) * 256U + byte(at + 1);
        const unsigned char third = byte(at + 2);
        require(pair < 0xC280 || pair > 0xC29F, "a terminal gets no control character of Latin-1");
        const bool turns = pair == 0xD89C || (pair == 0xE280 && (third == 0x8E || third == 0x8F)) ||
                           (pair == 0xE280 && third >= 0xAA && third <= 0xAE) ||
                           (pair == 0xE281 && third >= 0xA6 && third <= 0xA9);
        require(!turns, "a terminal gets no change of the direction of writing");
    }
}

/// Checks that each line is a JSON text.
void check_json_lines(std::string_view text) {
    while (!text.empty()) {
        boost::json::error_code ec;
        const std::string_view line = take_line(text);
        boost::json::parse({line.data(), line.size()}, ec);
        require(!ec, "a line of --json is JSON");
    }
}

/// Collects what is written to a stream for its lifetime.
class captured {
  public:
    explicit captured(std::ostream& stream) : stream_(stream), before_(stream.rdbuf(text_.rdbuf())) {}
    ~captured() { stream_.rdbuf(before_); }
    captured(const captured&) = delete;
    captured& operator=(const captured&) = delete;
    std::string text() const { return text_.str(); }

  private:
    std::ostringstream text_;
    std::ostream& stream_;
    std::streambuf* before_;
};

}  // namespace

void run_input(std::string_view input) {
    // Colours would be control characters.
    [[maybe_unused]] static const int without_colours = ::setenv("NO_COLOR", "1", 1);
    script = {};
    script.words = take_line(input);
    script.left = input;
    script.on_terminal = !script.has("pipe");
    const captured out(std::cout);
    const captured errors(std::cerr);
    try {
        run_command();
    } catch (const stream_ended&) {
    } catch (const std::exception& e) {
        runtime::print_error("command", e.what());  // as main does
    }
    check_for_terminal(errors.text());
    if (script.on_terminal) check_for_terminal(out.text());
    if (script.has_json_lines) check_json_lines(out.text());
    if (!script.on_terminal && !script.downloaded.empty())
        require(out.text() == script.downloaded, "a file gets the bytes of the gateway");
}

}  // namespace fencegate::fuzz

/// In place of that of the C library.
extern "C" int isatty(int) noexcept {
    return fencegate::fuzz::script.on_terminal ? 1 : 0;
}

namespace fencegate::cli {

// In place of the product's job_control: the signals and the terminal are those of libFuzzer.

signal_block::signal_block() = default;
signal_block::signal_block(int) {}
signal_block::~signal_block() = default;
pid_t foreground_group() {
    return -1;
}
bool is_in_foreground() {
    return false;
}
void give_terminal(pid_t) {}
void stop_in_background() {}
std::vector<int> forwarded_signals() {
    return {};
}
std::vector<int> handled_signals(bool) {
    return {};
}
bool ends_by_default(int) {
    return false;
}
bool is_end_request(int) {
    return false;
}

// In place of the product's watchdog, which is a process: no command is started.

orphan_watchdog::orphan_watchdog(const std::function<void(const std::string&)>&) {}
orphan_watchdog::~orphan_watchdog() = default;
void orphan_watchdog::guard(pid_t) {}
void orphan_watchdog::guard_lease(const std::string&) {}
void orphan_watchdog::handle_child_exit(pid_t) {}

/// In place of the product's, which uses libcurl. Those of a lease come from several threads.
http_response send_request(const gateway_address&, const tls_identity&, const http_request& request,
                           const transfer_options& options) {
    static std::mutex mutex;
    const std::lock_guard lock(mutex);
    for (const std::string* line : {&request.target, &request.accept, &request.last_event_id, &request.idempotency_key})
        fuzz::check_line(*line);
    auto answer = fuzz::take_answer();
    // A lease that is held would be renewed and watched again and again.
    if (!answer && fuzz::script.holds && request.target.starts_with("/v1/leases/")) throw fuzz::stream_ended();
    if (!answer) throw gateway_unreachable("no answer from the gateway");
    const std::string body = answer->body;
    std::string_view left = body;
    if (options.handle_event && answer->is_event_stream()) {
        event_reader reader;
        bool wanted = true;
        while (wanted && !left.empty()) {
            reader.add(fuzz::take_piece(left));
            for (auto event = reader.next(); wanted && event; event = reader.next())
                wanted = options.handle_event(*event);
            fuzz::check_line(reader.last_id());  // sent back when the stream is opened again
        }
        if (wanted && fuzz::script.ends_with_stream) throw fuzz::stream_ended();
        answer->body.clear();
    } else if (options.handle_piece && answer->is_success()) {
        while (!left.empty())
            options.handle_piece(fuzz::take_piece(left));
        fuzz::script.downloaded = body;
        answer->body.clear();
    }
    return std::move(*answer);
}

}  // namespace fencegate::cli
