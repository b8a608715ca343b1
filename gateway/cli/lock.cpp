#include <gateway/cli/lock.hpp>

#include <gateway/cli/job_control.hpp>
#include <gateway/cli/lease_calls.hpp>
#include <gateway/cli/leased_command.hpp>
#include <gateway/cli/tick.hpp>
#include <gateway/cli/timers.hpp>
#include <gateway/domain/exit_code.hpp>
#include <gateway/runtime/background.hpp>
#include <gateway/runtime/text.hpp>

#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <exception>
#include <functional>
#include <iostream>
#include <optional>
#include <string_view>
#include <utility>

namespace fencegate::cli {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;
using std::chrono::milliseconds;

/// The interval of the checks whether the last process of an ended command has exited.
constexpr milliseconds exit_poll_interval{20};
/// A timer that fires later than this shows that this process or the machine was suspended.
constexpr milliseconds suspension_min{250};
/// How long the command may keep running after a suspension, until a gateway renews its lease.
constexpr milliseconds late_renewal_timeout{1'000};
/// How long one attempt to renew may take at least, and the pauses between two attempts.
constexpr milliseconds attempt_min{100}, renewal_pause_min{20}, renewal_pause_max{500};
milliseconds time_until(boot_clock::time_point end) {
    return std::chrono::ceil<milliseconds>(end - boot_clock::now());
}

/// The state of one `fencegate lock`, or of one term of `fencegate elect`. All handlers run on the thread of run().
class lock_run {
  public:
    lock_run(const client& gateway, leased_command& command, const lock_options& options)
        : gateway_(gateway),
          command_(command),
          options_(options),
          calls_(io_, gateway, options),
          signals_(io_),
          lease_timer_(io_),
          renewal_timer_(io_),
          hold_(io_, options, [this](const std::string& reason) { end_hold(reason); }),
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

    /// As of lease_calls.
    std::function<void()> withdrawal() const { return calls_.withdrawal(); }

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
            renew_before_resuming();
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

    /// Releases what was granted. A request that is under way ends with the connection, and leaves the queue.
    void abandon_start() {
        release_hold();
        if (!lease_.lease_id.empty()) calls_.release(lease_.lease_id, lease_.valid_until);
        finish(code_);
    }

    std::string held_names(std::string_view separator = ", ") const {
        return options_.any_of ? lease_.resource : join_names(options_.resources, separator);
    }
    bool has_command() const { return !options_.command.empty(); }

    /// Acquires the lease, starts the command and watches the lease.
    asio::awaitable<void> run_lease() {
        while (phase_ == phase::acquiring) {
            const auto refusal = co_await calls_.acquire();
            if (refusal) {
                note_refusal(*refusal);
                finish(code_);
                co_return;
            }
            co_await start_command();
        }
        if (phase_ != phase::running) co_return;
        const std::string reason = co_await calls_.watch(lease_.lease_id, [this] { return phase_ == phase::running; });
        if (!reason.empty()) handle_lease_loss(reason);
    }

    /// Starts the command under the lease that was granted, unless that has expired already.
    asio::awaitable<void> start_command() {
        lease_ = calls_.granted();
        const auto granted_at = lease_.answered_at;
        // The response took long, perhaps before the gateway granted the lease.
        if (time_until(lease_.valid_until) < std::chrono::floor<milliseconds>(lease_.valid_until - granted_at) / 2)
            co_await renew(gateway_.timeout());
        if (phase_ != phase::acquiring) co_return abandon_start();
        std::optional<lock_refusal> refusal = hold_.check(lease_.max_hold);
        if (!refusal && (options_.every || options_.at_least)) {
            refusal = co_await prepare_start();
            if (phase_ != phase::acquiring) co_return abandon_start();  // a signal arrived meanwhile
        }
        if (refusal) {
            note_refusal(*refusal);
            co_return abandon_start();
        }
        if (time_until(lease_.valid_until) <= milliseconds{0}) {
            release_hold();
            print_message(
                options_,
                "the lease had expired when it arrived: the gateway, the network or this machine took longer than "
                "its ttl");
            if (calls_.may_wait()) co_return;
            code_ = exit_not_granted;
            co_return abandon_start();
        }
        command_.guard_lease(lease_.lease_id);
        start_holding();
        phase_ = phase::running;
        arm_lease_end();
        hold_.begin(granted_at, lease_.max_hold);
        arm_renewal();
        if (!std::cout.flush()) {  // main() prints why
            code_ = exit_failed;
            release_lease();
        }
    }

    /// Records the start of the tick and keeps the lease for the shortest time.
    asio::awaitable<std::optional<lock_refusal>> prepare_start() {
        std::optional<lock_refusal> refusal;
        if (options_.every) {
            gateway_call call = [this](http_request request) { return calls_.call(std::move(request)); };
            refusal = co_await begin_tick(std::move(call), options_.resources.front(), lease_.token, *options_.every);
            if (refusal) co_return refusal;
        }
        if (options_.at_least) {
            keeping_ = true;
            try {
                hold_id_ = co_await calls_.keep(*options_.at_least, refusal);
            } catch (const gateway_unreachable&) {
                if (phase_ == phase::acquiring) throw;
            }
            keeping_ = false;
            kept_until_ = boot_clock::now() + *options_.at_least;
            if (refusal || phase_ != phase::acquiring) co_return refusal;
        }
        // The calls took a part of the validity.
        co_await renew(gateway_.timeout());
        co_return refusal;
    }

    void start_holding() {
        const std::string token = std::to_string(lease_.token);
        const std::vector<std::pair<std::string, std::string>> variables{
            {"FENCING_TOKEN", token}, {"FENCING_LEASE", lease_.lease_id}, {"FENCING_RESOURCE", held_names("\n")}};
        if (options_.elect) print_message(options_, "leader of " + held_names() + ", term " + token);
        if (has_command()) return command_.start(options_.command, variables, handled_signals_);
        for (const auto& [name, value] : variables)
            std::cout << name << "=" << runtime::prepare_for_stdout(value) << "\n";
        if (std::cout.flush() && isatty(STDERR_FILENO) == 1) print_message(options_, "held until Ctrl-C");
    }

    void note_refusal(const lock_refusal& refusal) {
        code_ = refusal.conflict ? options_.conflict_exit_code : refusal.exit_code;
        if (code_ != exit_ok) print_message(options_, refusal.text);
    }

    /// Begins the next renewal when it is due: a third of the validity after the request for the last one.
    void arm_renewal() {
        // A renewal that would add little is left out, so that renewals do not follow each other ever faster.
        if (!exhausted_ && hold_.end() - lease_.valid_until < lease_.ttl / 10) end_renewals({});
        if (exhausted_) return;
        const auto third = (lease_.valid_until - lease_.sent_at) / 3;
        renewal_timer_.arm(lease_.sent_at + third, [this] { begin_renewal(); });
    }

    void begin_renewal() {
        if (renewing_ || !is_kept()) return;
        runtime::run_in_background(io_.get_executor(), renew_until_answered());
    }

    /// Returns whether the lease is needed: while the command runs, and until it has ended after the longest hold.
    bool is_kept() const {
        return phase_ == phase::running || (phase_ == phase::ending && code_ == exit_held_too_long);
    }

    /// Renews the lease, at one gateway after another while they fail and the validity lasts.
    asio::awaitable<void> renew_until_answered() {
        renewing_ = true;
        asio::steady_timer pause(io_);
        while (is_kept() && !exhausted_) {
            const milliseconds left = time_until(lease_.valid_until);
            if (left <= milliseconds{0}) break;  // lease_timer_ decides then
            // One that does not answer leaves time to ask the others.
            const bool renewed = co_await renew(std::min(std::max(left / 3, attempt_min), gateway_.timeout()));
            if (renewed) break;
            pause.expires_after(std::clamp(left / 20, renewal_pause_min, renewal_pause_max));
            co_await pause.async_wait(asio::use_awaitable);
        }
        renewing_ = false;
        if (is_kept() && time_until(lease_.valid_until) > milliseconds{0}) arm_renewal();
    }

    /// Makes one attempt. Out: whether the lease was renewed.
    asio::awaitable<bool> renew(milliseconds timeout) {
        const auto found = co_await calls_.renew(lease_.lease_id, hold_.limit(lease_.ttl), timeout);
        co_return apply(found);
    }

    bool apply(const lease_calls::renewal& found) {
        using outcome = lease_calls::renewal::outcome;
        if (found.result == outcome::renewed) {
            const auto valid_until = std::max(lease_.valid_until, found.lease.valid_until);
            lease_.sent_at = found.lease.sent_at;
            lease_.valid_until = valid_until;
            if (found.lease.max_hold > milliseconds{0}) lease_.max_hold = found.lease.max_hold;
            renewal_fault_.clear();
            if (phase_ == phase::running) arm_lease_end();
            return true;
        }
        renewal_fault_ = found.reason;
        if (found.result == outcome::lost && phase_ == phase::acquiring) lease_.valid_until = {};
        if (found.result == outcome::lost) handle_lease_loss(found.reason);
        if (found.result == outcome::exhausted) end_renewals(found.reason);
        return false;
    }

    /// The hold ends with the present validity. `refusal`: why, if the gateway renews the lease no more.
    void end_renewals(const std::string& refusal) {
        exhausted_ = true;
        hold_.shorten(lease_.valid_until, refusal);
    }

    /// Runs before the command continues after it was stopped together with this process (Ctrl-Z).
    void renew_before_resuming() {
        if (phase_ != phase::running || time_until(lease_.valid_until) > milliseconds{0}) return;
        apply(calls_.renew_now(lease_.lease_id, hold_.limit(lease_.ttl)));
        if (time_until(lease_.valid_until) <= milliseconds{0})
            handle_lease_loss("it expired while this process was stopped");
    }

    /// Ends the command when the validity of the lease is over.
    void arm_lease_end() {
        lease_timer_.arm(lease_.valid_until, [this] {
            if (time_until(lease_.valid_until) > milliseconds{0}) return arm_lease_end();
            if (phase_ != phase::running || boot_clock::now() - lease_.valid_until <= suspension_min)
                return handle_expiry();
            // This process was suspended: the answer to a renewal may have arrived.
            runtime::run_in_background(io_.get_executor(), renew_late());
        });
    }

    asio::awaitable<void> renew_late() {
        co_await renew(std::min(late_renewal_timeout, gateway_.timeout()));
        if (time_until(lease_.valid_until) <= milliseconds{0}) co_return handle_expiry();
        if (!renewing_) arm_renewal();
    }

    void handle_expiry() {
        handle_lease_loss("it expired" +
                          (renewal_fault_.empty() ? "" : ", and could not be renewed: " + renewal_fault_));
    }

    /// Ends the command, which is killed at the end of the longest hold: at once if that is over.
    void end_hold(const std::string& reason) {
        const milliseconds left = std::max(time_until(hold_.end()), milliseconds{0});
        end_command(exit_held_too_long, std::min(options_.kill_after, left), reason);
    }

    void handle_lease_loss(const std::string& reason) {
        end_command(exit_lease_lost, options_.kill_after, "the lease on " + held_names() + " is lost (" + reason + ")");
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
        hold_.cancel();
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
        hold_.cancel();
        if (kept_until_ <= boot_clock::now()) release_hold();
        if (options_.seal) {
            const int seal_code = calls_.seal(lease_.lease_id);
            if (code_ == exit_ok) code_ = seal_code;
        } else {
            calls_.release(lease_.lease_id, lease_.valid_until);
        }
        finish(code_);
    }

    /// Releases the hold of --at-least; if that fails, it ends by itself.
    void release_hold() {
        if (!hold_id_.empty()) calls_.release(std::exchange(hold_id_, {}), kept_until_);
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
    lease_calls calls_;
    asio::signal_set signals_;
    boot_timer lease_timer_, renewal_timer_;
    hold_limit hold_;
    boot_timer kill_timer_;
    asio::steady_timer exit_poll_timer_;
    std::vector<int> handled_signals_;
    lease_state lease_;
    std::string renewal_fault_;  ///< Why the latest renewal failed; empty: it did not.
    std::string hold_id_;        ///< The lease_id of the hold of --at-least; empty: none.
    boot_clock::time_point kept_until_{};
    boot_clock::time_point kill_time_;  ///< When the command that is being ended gets SIGKILL.
    bool keeping_ = false;              ///< The hold of --at-least is being requested.
    bool renewing_ = false;
    bool exhausted_ = false;  ///< The lease is not renewed any more.
    bool lost_ = false, interrupted_ = false;
    phase phase_ = phase::acquiring;
    int code_ = exit_failed;
};

}  // namespace

int run_locked(const gateway_options& gateway, const lock_options& options) {
    lock_options run_options = options;
    const client caller(gateway);
    leased_command command([&options](const std::string& text) { print_message(options, text); },
                           [&caller](const std::string& lease_id) { release_orphaned_lease(caller, lease_id); });
    if (!options.command.empty()) command.ignore_sigpipe();
    for (;;) {
        // Only this run takes further holds of the lease; another term is another lease, with a higher token.
        if (options.elect || options.at_least) run_options.owner = make_holder_name();
        std::optional<lock_run> run;
        const int code = run.emplace(caller, command, run_options).run();
        const auto withdraw = run->withdrawal();
        const bool competes = options.elect && !options.exit_on_loss && run->has_lost_lease();
        run.reset();  // closes its connections
        if (withdraw) withdraw();
        if (!competes) return code;
        print_message(run_options, "competing again for " + join_names(options.resources));
        run_options.persistent = true;
    }
}

}  // namespace fencegate::cli
