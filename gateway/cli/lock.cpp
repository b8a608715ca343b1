#include <gateway/cli/lock.hpp>

#include <gateway/app.hpp>
#include <gateway/cli/boot_timer.hpp>
#include <gateway/cli/duration.hpp>
#include <gateway/cli/fields.hpp>
#include <gateway/cli/guarded_command.hpp>
#include <gateway/cli/lease_stream.hpp>
#include <gateway/runtime/percent_encoding.hpp>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/json.hpp>

#include <algorithm>
#include <csignal>
#include <exception>

namespace fencegate::cli {
namespace {

namespace asio = boost::asio;
namespace json = boost::json;
using boost::system::error_code;
using std::chrono::milliseconds;

/// How often it is looked whether the last process of an ended command is gone.
constexpr milliseconds look_again{20};
/// A timer that is so much too late says that this process or the machine stood still.
constexpr milliseconds stood_still{250};
/// How long a command may run on while it is asked whether its lease outlived such a time.
constexpr milliseconds last_question{1'000};
/// How long before the end of the longest hold it is announced, at most.
constexpr milliseconds announce_before{60'000};

void rethrow(std::exception_ptr failed) {
    if (failed) std::rethrow_exception(failed);
}

milliseconds until(boot_clock::time_point at) {
    return std::chrono::ceil<milliseconds>(at - boot_clock::now());
}

/// One run: everything happens in one thread, one step after another.
class lock_run {
  public:
    lock_run(const client& gateway, guarded_command& command, const lock_options& wanted)
        : gateway_(gateway),
          command_(command),
          wanted_(wanted),
          stream_(io_, gateway, wanted),
          signals_(io_),
          lease_ends_(io_),
          hold_ends_(io_),
          kill_(io_),
          release_(io_) {}

    int run() {
        watch_signals();
        asio::co_spawn(io_, follow(), rethrow);
        io_.run();
        return code_;
    }

  private:
    /// ending: the command was asked to end.
    enum class phase { asking, running, ending, done };

    /// Signals that we were started to ignore (nohup) stay ignored, for the command too.
    void watch_signals() {
        for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGCHLD}) {
            struct sigaction before {};
            sigaction(number, nullptr, &before);
            if (before.sa_handler == SIG_IGN && number != SIGCHLD) continue;
            signals_.add(number);
            handled_.push_back(number);
        }
        next_signal();
    }

    void next_signal() {
        signals_.async_wait([this](const error_code& ec, int number) {
            if (ec) return;
            if (number == SIGCHLD) {
                if (const auto status = command_.look([this] { confirm_before_resuming(); })) command_ended(*status);
            } else if (phase_ == phase::asking) {
                finish(128 + number);  // the connection closes, and with it our place in the queue
            } else {
                command_.signal(number);
            }
            next_signal();
        });
    }

    asio::awaitable<void> follow() {
        while (phase_ == phase::asking) {
            const auto refusal = co_await stream_.open();
            if (refusal) {
                say(refusal->text);
                finish(refusal->exit_code);
                co_return;
            }
            co_await start_command();
        }
        if (phase_ == phase::done) co_return;
        std::string broken = "the connection to the gateway broke";
        try {
            for (;;) {
                const auto event = co_await stream_.next_event();
                if (!event) break;
                take(*event);
            }
        } catch (const std::exception& e) {
            broken = std::string("what the gateway tells makes no sense: ") + e.what();
        }
        stream_ended_ = true;
        if (phase_ == phase::done) io_.stop();
        lose(broken);
    }

    /// With the stream's first event, unless its lease is over already.
    asio::awaitable<void> start_command() {
        const auto event = co_await stream_.next_event();
        const bool over = event && (event->name == "lost" || event->name == "released");
        if (!event || !(over || event->name == "granted"))
            throw unreachable("the gateway broke the connection before it granted the lease");
        const json::value parsed = json::parse(event->data);
        const json::object& lease = parsed.as_object();
        lease_id_ = text(lease, "lease_id");
        valid_until_ = over ? boot_clock::time_point() : stream_.valid_until(lease);
        // The answer took long: that need not have been the way back. Asking again tells.
        if (!over && until(valid_until_) < milliseconds(number(lease, "validity_ms").value_or(0)) / 2)
            co_await confirm(gateway_.timeout());
        if (phase_ != phase::asking) co_return;
        if (until(valid_until_) <= milliseconds{0}) {
            say("the lease was over when it arrived: the gateway, the network or this machine took longer than its "
                "ttl");
            if (!stream_.may_wait()) finish(exit_not_granted);
            co_return;
        }
        command_.start(wanted_.command,
                       {{"FENCING_TOKEN", shown(lease, "fencing_token")},
                        {"FENCING_LEASE", lease_id_},
                        {"FENCING_RESOURCE", joined(wanted_.resources)}},
                       handled_);
        phase_ = phase::running;
        arm_lease_end();
        arm_hold_end(lease);
    }

    void take(const stream_event& event) {
        const json::value parsed = json::parse(event.data);
        const json::object& lease = parsed.as_object();
        if (phase_ != phase::running) return;
        if (event.name == "renewed") {
            confirm_renewal();
        } else if (event.name == "released" && number(lease, "hold_left_ms") == 0) {
            end_command(exit_held_too_long, wanted_.kill_after, "the lease was held as long as allowed");
        } else if (event.name == "lost" || event.name == "released") {
            lose(text(lease, "reason"));
        }
    }

    /// How old an event is when it arrives is not known, for it answers nothing that we sent. So what it says is asked
    /// for, and counted from then.
    void confirm_renewal() {
        if (std::exchange(confirming_, true)) {
            confirm_again_ = true;
            return;
        }
        asio::co_spawn(io_, confirm_renewals(), rethrow);
    }

    asio::awaitable<void> confirm_renewals() {
        do {
            confirm_again_ = false;
            const milliseconds left = std::max(until(valid_until_), last_question);
            co_await confirm(std::min(left, gateway_.timeout()));
        } while (confirm_again_ && phase_ == phase::running);
        confirming_ = false;
    }

    asio::awaitable<void> confirm(milliseconds within) {
        const auto found = co_await stream_.confirm(lease_id_, within);
        valid_until_ = std::max(valid_until_, found.valid_until);
        if (found.lost) lose("a majority of the nodes no longer holds it");
        if (phase_ == phase::running) arm_lease_end();
    }

    /// The command was stopped together with us (Ctrl-Z) and is to go on.
    void confirm_before_resuming() {
        if (phase_ != phase::running || until(valid_until_) > milliseconds{0}) return;
        valid_until_ = std::max(valid_until_, stream_.confirm_now(lease_id_).valid_until);
        if (until(valid_until_) <= milliseconds{0}) return lose("it ran out while the command was stopped");
        arm_lease_end();
    }

    /// No news is bad news: a gateway that hangs or is cut off tells nothing.
    void arm_lease_end() {
        lease_ends_.arm(valid_until_, [this] {
            if (until(valid_until_) > milliseconds{0}) return arm_lease_end();
            const bool late = boot_clock::now() - valid_until_ > stood_still;
            if (phase_ != phase::running || !(late || stream_.has_unread()))
                return lose("it ran out, and the gateway told nothing");
            // We were stopped and may have missed renewals.
            asio::co_spawn(io_, confirm_late(), rethrow);
        });
    }

    asio::awaitable<void> confirm_late() {
        co_await confirm(std::min(last_question, gateway_.timeout()));
        if (until(valid_until_) <= milliseconds{0}) lose("it ran out, and the gateway told nothing");
    }

    /// Behind the longest hold the gateway gives the lease to the next: the command has to be gone by then.
    void arm_hold_end(const json::object& lease) {
        milliseconds longest = wanted_.max_hold.value_or(milliseconds::max());
        if (const auto left = number(lease, "hold_left_ms")) longest = std::min(longest, milliseconds(*left));
        if (longest == milliseconds::max()) return;
        const milliseconds grace = std::min(wanted_.kill_after, longest / 10);
        const auto end_at = boot_clock::now() + longest - grace;
        hold_ends_.arm(end_at - std::min(announce_before, longest / 10), [this, end_at, longest, grace] {
            say("the longest hold, " + format_duration(longest) + ", is over soon: the command is ended in " +
                format_duration(std::max(until(end_at), milliseconds{0})));
            hold_ends_.arm(end_at, [this, longest, grace] {
                end_command(exit_held_too_long, grace, "the longest hold, " + format_duration(longest) + ", is over");
            });
        });
    }

    void lose(const std::string& why) {
        end_command(exit_lease_lost, wanted_.kill_after,
                    "the lease on " + joined(wanted_.resources) + " is lost (" + why + ")");
    }

    void end_command(int code, milliseconds grace, const std::string& why) {
        if (phase_ != phase::running) return;
        phase_ = phase::ending;
        code_ = code;
        say(why + "; ending the command");
        command_.end();
        kill_.expires_after(grace);
        kill_.async_wait([this](const error_code& ec) {
            if (!ec) command_.signal(SIGKILL);
        });
    }

    void command_ended(int status) {
        lease_ends_.cancel();
        hold_ends_.cancel();
        if (phase_ == phase::ending) return await_rest();
        code_ = exit_code_of(status);
        give_back();
    }

    /// What the command started has as long as the command itself to end.
    void await_rest() {
        if (command_.left_something() && kill_.expiry() > std::chrono::steady_clock::now()) {
            release_.expires_after(look_again);
            release_.async_wait([this](const error_code& ec) {
                if (!ec) await_rest();
            });
            return;
        }
        command_.kill_rest();
        if (code_ == exit_lease_lost) return finish(code_);
        give_back();
    }

    void give_back() {
        phase_ = phase::done;
        if (wanted_.seal) seal();
        if (stream_ended_) return finish(code_);
        stream_.finish();
        // The end of the stream says that the lease is released; otherwise it runs out by itself.
        release_.expires_after(gateway_.timeout());
        release_.async_wait([this](const error_code& ec) {
            if (!ec) io_.stop();
        });
    }

    void seal() {
        request what;
        what.method = "DELETE";
        what.target = "/v1/leases/" + runtime::percent_encode(lease_id_) + "?seal=true";
        int otherwise = exit_unavailable;
        try {
            const answer got = gateway_.call(std::move(what));
            if (got.ok()) return;
            say("not sealed: " + describe(got));
            if (got.status == 410) otherwise = exit_lease_lost;
        } catch (const unreachable& e) {
            say("not sealed: " + std::string(e.what()));
        }
        if (code_ == exit_ok) code_ = otherwise;
    }

    void finish(int code) {
        phase_ = phase::done;
        code_ = code;
        io_.stop();
    }

    const client& gateway_;
    guarded_command& command_;
    const lock_options& wanted_;
    asio::io_context io_{1};
    lease_stream stream_;
    asio::signal_set signals_;
    boot_timer lease_ends_, hold_ends_;
    asio::steady_timer kill_, release_;
    std::vector<int> handled_;
    std::string lease_id_;
    boot_clock::time_point valid_until_;  ///< The lease is ours until then, whatever happens elsewhere.
    bool confirming_ = false, confirm_again_ = false, stream_ended_ = false;
    phase phase_ = phase::asking;
    int code_ = exit_failed;
};

}  // namespace

int run_locked(const gateway_options& at, const lock_options& wanted) {
    if (wanted.command.empty()) throw usage_error("no command: fencegate lock RESOURCE... -- COMMAND...");
    const client gateway(at);
    guarded_command command;
    return lock_run(gateway, command, wanted).run();
}

}  // namespace fencegate::cli
