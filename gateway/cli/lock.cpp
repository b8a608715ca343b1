#include <gateway/cli/lock.hpp>

#include <gateway/cli/boot_timer.hpp>
#include <gateway/cli/duration.hpp>
#include <gateway/cli/fields.hpp>
#include <gateway/cli/lease_stream.hpp>
#include <gateway/cli/leased_command.hpp>
#include <gateway/cli/lock_signals.hpp>
#include <gateway/cli/tick.hpp>
#include <gateway/domain/exit_code.hpp>
#include <gateway/runtime/background.hpp>
#include <gateway/runtime/terminal.hpp>

#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/json.hpp>

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <exception>
#include <iostream>
#include <utility>

namespace fencegate::cli {
namespace {

namespace asio = boost::asio;
namespace json = boost::json;
using boost::system::error_code;
using std::chrono::milliseconds;

/// The interval of the checks whether the last process of an ended command has exited.
constexpr milliseconds exit_poll_interval{20};
/// A timer that fires later than this shows that this process or the machine was suspended.
constexpr milliseconds suspension_min{250};
/// How long the command may keep running after a suspension, until the gateway confirms its lease.
constexpr milliseconds late_confirmation_timeout{1'000};
/// The longest time from the warning to the end of the longest hold.
constexpr milliseconds warning_time_max{60'000};

milliseconds time_until(boot_clock::time_point end) {
    return std::chrono::ceil<milliseconds>(end - boot_clock::now());
}

/// The state of one `fencegate lock`, or of one term of `fencegate elect`. All handlers run on the thread that calls run().
class lock_run {
  public:
    lock_run(const client& gateway, leased_command& command, const lock_options& options)
        : gateway_(gateway),
          command_(command),
          options_(options),
          stream_(io_, gateway, options),
          signals_(io_),
          lease_timer_(io_),
          hold_timer_(io_),
          kill_timer_(io_),
          exit_poll_timer_(io_) {}

    int run() {
        watch_signals();
        runtime::run_in_background(io_.get_executor(), run_lease());
        io_.run();
        // The release blocks this thread: handles a signal that arrived meanwhile.
        if (lost_) {
            io_.restart();
            io_.poll();
        }
        return code_;
    }

    /// Returns whether the lease was lost or over, and not ended by a signal.
    bool has_lost_lease() const { return lost_ && !interrupted_; }

  private:
    enum class phase {
        acquiring,
        running,
        ending,  ///< The command has received SIGTERM.
        done
    };

    void watch_signals() {
        handled_signals_ = handled_signals(has_command());
        for (const int number : handled_signals_)
            signals_.add(number);
        await_signal();
    }

    void await_signal() {
        signals_.async_wait([this](const error_code& ec, int number) {
            if (ec) return;
            handle_signal(number);
            await_signal();
        });
    }

    void handle_signal(int number) {
        const bool has_started = phase_ == phase::running || phase_ == phase::ending;
        if (number == SIGCHLD) {
            if (const auto status = command_.check_status()) handle_command_exit(*status);
        } else if (number == SIGCONT) {
            confirm_before_resuming();
            command_.resume();
        } else if (number == SIGTSTP) {
            if (has_started && has_command()) return command_.suspend();
            raise(SIGSTOP);
        } else if (number == SIGTTIN || number == SIGTTOU) {
            command_.handle_terminal_request();
        } else if (has_started && has_command()) {
            // SIGHUP asks many programs to read their configuration again.
            if (is_end_request(number) && (number != SIGHUP || phase_ == phase::ending)) interrupted_ = true;
            command_.send_signal(number);
        } else if (phase_ == phase::running && is_end_request(number)) {
            code_ = exit_ok;
            release_lease();
        } else if (phase_ == phase::acquiring && ends_by_default(number)) {
            phase_ = phase::done;
            code_ = 128 + number;
            if (!keeping_) abandon_start();
        } else if (phase_ == phase::done && is_end_request(number)) {
            interrupted_ = true;
        }
    }

    /// Releases the hold of --at-least, and gives up the lease, or the place in the queue.
    void abandon_start() {
        release_hold();
        stream_.cancel();
        finish(code_);
    }

    bool has_command() const { return !options_.command.empty(); }

    /// Acquires the lease, starts the command and handles the events of the lease until the stream ends.
    asio::awaitable<void> run_lease() {
        while (phase_ == phase::acquiring) {
            const auto refusal = co_await stream_.open();
            if (refusal) {
                note_refusal(*refusal);
                finish(code_);
                co_return;
            }
            co_await start_command();
        }
        std::string reason = "the connection to the gateway broke";
        try {
            for (;;) {
                const auto event = co_await stream_.next_event();
                if (!event) break;
                handle_event(*event);
            }
        } catch (const std::exception& e) {
            reason = std::string("the gateway sent an invalid event: ") + e.what();
        }
        handle_lease_loss(reason);
    }

    /// Reads the stream's first event and starts the command, unless the lease has expired already.
    asio::awaitable<void> start_command() {
        const auto event = co_await stream_.next_event();
        const bool ended = event && (event->name == "lost" || event->name == "released");
        if (!event || !(ended || event->name == "granted"))
            throw gateway_unreachable("the gateway broke the connection before it granted the lease");
        const json::value parsed = json::parse(event->data);
        const json::object& lease = parsed.as_object();
        lease_id_ = get_text(lease, "lease_id");
        valid_until_ = ended ? boot_clock::time_point() : stream_.valid_until(lease);
        const auto granted_at = stream_.answered_at(lease);
        // The response took long, perhaps before the gateway granted the lease. A confirmation may prove a longer
        // validity.
        if (!ended && time_until(valid_until_) < get_duration(lease, "validity_ms").value_or(milliseconds{0}) / 2)
            co_await confirm(gateway_.timeout());
        if (phase_ != phase::acquiring) co_return;
        if (!ended && (options_.every || options_.at_least)) {
            const auto refusal = co_await prepare_start(get_integer(lease, "fencing_token").value_or(0));
            if (phase_ != phase::acquiring) {  // a signal arrived while the hold was requested
                abandon_start();
                co_return;
            }
            if (refusal) {
                note_refusal(*refusal);
                stream_.release(lease_id_);
                finish(code_);
                co_return;
            }
        }
        if (time_until(valid_until_) <= milliseconds{0}) {
            release_hold();
            print_message(
                options_,
                "the lease had expired when it arrived: the gateway, the network or this machine took longer than "
                "its ttl");
            if (!stream_.may_wait()) finish(exit_not_granted);
            co_return;
        }
        start_holding(lease);
        phase_ = phase::running;
        arm_lease_end();
        arm_hold_end(lease, granted_at);
        if (!std::cout.flush()) {  // main() prints why
            code_ = exit_failed;
            release_lease();
        }
    }

    /// Records the start of the tick and keeps the lease for the shortest time.
    asio::awaitable<std::optional<lock_refusal>> prepare_start(std::int64_t token) {
        std::optional<lock_refusal> refusal;
        if (options_.every) {
            gateway_call call = [this](http_request request) { return stream_.call(std::move(request)); };
            refusal = co_await begin_tick(std::move(call), options_.resources.front(), token, *options_.every);
            if (refusal) co_return refusal;
        }
        if (options_.at_least) {
            keeping_ = true;
            try {
                hold_id_ = co_await stream_.keep(*options_.at_least, refusal);
            } catch (const gateway_unreachable&) {
                if (phase_ == phase::acquiring) throw;
            }
            keeping_ = false;
            kept_until_ = boot_clock::now() + *options_.at_least;
            if (refusal || phase_ != phase::acquiring) co_return refusal;
        }
        // The calls took a part of the validity.
        co_await confirm(gateway_.timeout());
        co_return refusal;
    }

    void start_holding(const json::object& lease) {
        const std::vector<std::pair<std::string, std::string>> variables{
            {"FENCING_TOKEN", display_text(lease, "fencing_token")},
            {"FENCING_LEASE", lease_id_},
            {"FENCING_RESOURCE", join_names(options_.resources)}};
        if (options_.elect)
            print_message(options_, "leader of " + join_names(options_.resources) + ", term " +
                                        display_text(lease, "fencing_token"));
        if (has_command()) return command_.start(options_.command, variables, handled_signals_);
        for (const auto& [name, value] : variables)
            std::cout << name << "=" << runtime::prepare_for_stdout(value) << "\n";
        if (std::cout.flush() && isatty(STDERR_FILENO) == 1) print_message(options_, "held until Ctrl-C");
    }

    void note_refusal(const lock_refusal& refusal) {
        code_ = refusal.conflict ? options_.conflict_exit_code : refusal.exit_code;
        if (code_ != exit_ok) print_message(options_, refusal.text);
    }

    void handle_event(const stream_event& event) {
        const json::value parsed = json::parse(event.data);
        const json::object& lease = parsed.as_object();
        if (phase_ != phase::running) return;
        if (event.name == "renewed") {
            confirm_renewal();
        } else if (event.name == "released" && get_duration(lease, "hold_left_ms") == milliseconds{0}) {
            end_hold("the lease was held as long as allowed");
        } else if (event.name == "lost" || event.name == "released") {
            handle_lease_loss(get_text(lease, "reason"));
        }
    }

    /// Asks the gateway for the validity of the lease. The event of a renewal does not prove it, because the time that
    /// the event took to arrive is not known; the validity in a response counts from the sending of the request.
    void confirm_renewal() {
        if (std::exchange(confirming_, true)) {
            confirm_again_ = true;
            return;
        }
        runtime::run_in_background(io_.get_executor(), confirm_renewals());
    }

    asio::awaitable<void> confirm_renewals() {
        do {
            confirm_again_ = false;
            const milliseconds left = std::max(time_until(valid_until_), late_confirmation_timeout);
            co_await confirm(std::min(left, gateway_.timeout()));
        } while (confirm_again_ && phase_ == phase::running);
        confirming_ = false;
    }

    asio::awaitable<void> confirm(milliseconds timeout) {
        const auto found = co_await stream_.confirm(lease_id_, timeout);
        valid_until_ = std::max(valid_until_, found.valid_until);
        if (found.lost && phase_ == phase::acquiring) valid_until_ = {};
        if (found.lost) handle_lease_loss("a majority of the nodes no longer holds it");
        if (phase_ == phase::running) arm_lease_end();
    }

    /// Runs before the command continues after it was stopped together with this process (Ctrl-Z).
    void confirm_before_resuming() {
        if (phase_ != phase::running || time_until(valid_until_) > milliseconds{0}) return;
        valid_until_ = std::max(valid_until_, stream_.confirm_now(lease_id_).valid_until);
        if (time_until(valid_until_) <= milliseconds{0})
            return handle_lease_loss("it expired while the command was stopped");
        arm_lease_end();
    }

    /// Ends the command when the validity of the lease is over: a gateway that hangs or is cut off reports nothing.
    void arm_lease_end() {
        lease_timer_.arm(valid_until_, [this] {
            if (time_until(valid_until_) > milliseconds{0}) return arm_lease_end();
            const bool late = boot_clock::now() - valid_until_ > suspension_min;
            if (phase_ != phase::running || !(late || stream_.has_unread()))
                return handle_lease_loss("it expired without a message from the gateway");
            // This process was suspended and may have missed renewals.
            runtime::run_in_background(io_.get_executor(), confirm_late());
        });
    }

    asio::awaitable<void> confirm_late() {
        co_await confirm(std::min(late_confirmation_timeout, gateway_.timeout()));
        if (time_until(valid_until_) <= milliseconds{0})
            handle_lease_loss("it expired without a message from the gateway");
    }

    /// Ends the command before the end of the longest hold, when the gateway grants the lease to the next caller.
    /// The time is counted from `granted_at`, when the gateway sent the lease.
    void arm_hold_end(const json::object& lease, boot_clock::time_point granted_at) {
        milliseconds longest = options_.max_hold.value_or(milliseconds::max());
        if (const auto left = get_duration(lease, "hold_left_ms")) longest = std::min(longest, *left);
        if (longest == milliseconds::max()) return;
        const milliseconds grace = std::min(options_.kill_after, longest / 10);
        hold_end_ = granted_at + longest;
        const auto end_time = hold_end_ - grace;
        hold_timer_.arm(end_time - std::min(warning_time_max, longest / 10), [this, end_time, longest] {
            print_message(options_, "the longest hold, " + format_duration(longest) + ", is over soon: it ends in " +
                                        format_duration(std::max(time_until(end_time), milliseconds{0})));
            hold_timer_.arm(
                end_time, [this, longest] { end_hold("the longest hold, " + format_duration(longest) + ", is over"); });
        });
    }

    /// Ends the command, which is killed at the end of the longest hold: at once if that is over.
    void end_hold(const std::string& reason) {
        const milliseconds left = std::max(time_until(hold_end_), milliseconds{0});
        end_command(exit_held_too_long, std::min(options_.kill_after, left), reason);
    }

    void handle_lease_loss(const std::string& reason) {
        end_command(exit_lease_lost, options_.kill_after,
                    "the lease on " + join_names(options_.resources) + " is lost (" + reason + ")");
    }

    void end_command(int code, milliseconds grace, const std::string& reason) {
        if (phase_ != phase::running) return;
        code_ = code;
        lost_ = true;
        print_message(options_, reason + (has_command() ? "; ending the command" : ""));
        if (!has_command()) return code == exit_lease_lost ? finish(code) : release_lease();
        phase_ = phase::ending;
        command_.terminate();
        kill_time_ = boot_clock::now() + grace;
        kill_timer_.arm(kill_time_, [this] { command_.send_signal(SIGKILL); });
    }

    void handle_command_exit(int status) {
        lease_timer_.cancel();
        hold_timer_.cancel();
        if (phase_ == phase::ending) return await_remaining_processes();
        code_ = to_exit_code(status);
        release_lease();
    }

    /// Waits until the processes that the command started have exited; kills them at the end of the command's own time.
    void await_remaining_processes() {
        if (command_.has_remaining_processes() && kill_time_ > boot_clock::now()) {
            exit_poll_timer_.expires_after(exit_poll_interval);
            exit_poll_timer_.async_wait([this](const error_code& ec) {
                if (!ec) await_remaining_processes();
            });
            return;
        }
        command_.kill_remaining_processes();
        if (code_ != exit_lease_lost) return release_lease();
        if (options_.seal) print_message(options_, "not sealed: the lease is lost");
        finish(code_);
    }

    void release_lease() {
        phase_ = phase::done;
        lease_timer_.cancel();
        hold_timer_.cancel();
        if (kept_until_ <= boot_clock::now()) release_hold();
        if (options_.seal) {
            const int seal_code = stream_.seal(lease_id_);
            if (code_ == exit_ok) code_ = seal_code;
        } else {
            stream_.release(lease_id_);
        }
        finish(code_);
    }

    /// Releases the hold of --at-least; if that fails, it ends by itself.
    void release_hold() {
        if (!hold_id_.empty()) stream_.release(std::exchange(hold_id_, {}));
    }

    void finish(int code) {
        phase_ = phase::done;
        code_ = code;
        io_.stop();
    }

    const client& gateway_;
    leased_command& command_;
    const lock_options& options_;
    asio::io_context io_{1};
    lease_stream stream_;
    asio::signal_set signals_;
    boot_timer lease_timer_, hold_timer_, kill_timer_;
    asio::steady_timer exit_poll_timer_;
    std::vector<int> handled_signals_;
    std::string lease_id_;
    std::string hold_id_;  ///< The lease_id of the hold of --at-least; empty: none.
    boot_clock::time_point kept_until_{};
    boot_clock::time_point valid_until_;  ///< The lease is certainly valid until then.
    boot_clock::time_point hold_end_ = boot_clock::time_point::max();
    boot_clock::time_point kill_time_;  ///< When the command that is being ended gets SIGKILL.
    bool keeping_ = false;              ///< The hold of --at-least is being requested.
    bool confirming_ = false, confirm_again_ = false, lost_ = false, interrupted_ = false;
    phase phase_ = phase::acquiring;
    int code_ = exit_failed;
};

}  // namespace

int run_locked(const gateway_options& gateway, const lock_options& options) {
    lock_options run_options = options;
    const client caller(gateway);
    leased_command command([&options](const std::string& text) { print_message(options, text); });
    if (!options.command.empty()) command.ignore_sigpipe();
    for (;;) {
        // Only this run takes further holds of the lease; another term is another lease, with a higher token.
        if (options.elect || options.at_least) run_options.owner = make_holder_name();
        lock_run run(caller, command, run_options);
        const int code = run.run();
        if (!options.elect || options.exit_on_loss || !run.has_lost_lease()) return code;
        print_message(run_options, "competing again for " + join_names(options.resources));
        run_options.persistent = true;
    }
}

}  // namespace fencegate::cli
