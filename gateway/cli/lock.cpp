#include <gateway/cli/lock.hpp>

#include <gateway/app.hpp>
#include <gateway/cli/fields.hpp>
#include <gateway/cli/guarded_command.hpp>
#include <gateway/cli/wire.hpp>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/json.hpp>

#include <csignal>
#include <exception>
#include <iostream>

namespace fencegate::cli {
namespace {

namespace asio = boost::asio;
namespace json = boost::json;
using boost::system::error_code;
using std::chrono::milliseconds;

/// How often it is looked whether the last process of an ended command is gone.
constexpr milliseconds look_again{20};

std::string body_of(const lock_options& wanted) {
    json::object out;
    if (wanted.resources.size() == 1) {
        out["resource"] = wanted.resources.front();
    } else {
        out["resources"] = json::value_from(wanted.resources);
    }
    out["wait_ms"] = wanted.wait.count();
    if (wanted.ttl) out["ttl_ms"] = wanted.ttl->count();
    if (!wanted.owner.empty()) out["owner"] = wanted.owner;
    return json::serialize(out);
}

std::string joined(const std::vector<std::string>& names) {
    std::string out;
    for (const auto& name : names)
        out += (out.empty() ? "" : ",") + name;
    return out;
}

int exit_code_of_refusal(unsigned status) {
    if (status == 423 || status == 429) return exit_not_granted;
    if (status == 401 || status == 403) return exit_not_allowed;
    if (status >= 500) return exit_unavailable;
    return status == 400 ? exit_usage : exit_failed;
}

void say(const std::string& what) {
    std::cerr << "fencegate lock: " << what << "\n" << std::flush;
}

/// One run: everything happens in one thread, one step after another.
class lock_run {
  public:
    lock_run(const client& gateway, guarded_command& command, const lock_options& wanted)
        : gateway_(gateway),
          command_(command),
          wanted_(wanted),
          to_(io_, gateway.at(), gateway.believed()),
          signals_(io_),
          lease_ends_(io_),
          kill_(io_),
          release_(io_) {}

    int run() {
        watch_signals();
        asio::co_spawn(io_, follow(), [](std::exception_ptr failed) {
            if (failed) std::rethrow_exception(failed);
        });
        io_.run();
        return code_;
    }

  private:
    enum class phase { asking, running, lost, done };

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
                if (const auto status = command_.look()) command_ended(*status);
            } else if (phase_ == phase::asking) {
                finish(128 + number);  // the connection closes, and with it our place in the queue
            } else {
                command_.signal(number);
            }
            next_signal();
        });
    }

    asio::awaitable<void> follow() {
        request what;
        what.method = "POST";
        what.target = "/v1/leases";
        what.accept = "text/event-stream";
        what.api_key = gateway_.api_key();
        what.body = body_of(wanted_);
        const answer got = co_await to_.send(std::move(what), wanted_.wait + gateway_.timeout());
        if (!got.streams()) {
            say(describe(got));
            finish(exit_code_of_refusal(got.status));
            co_return;
        }
        std::string broken = "the connection to the gateway broke";
        try {
            for (;;) {
                const auto event = co_await to_.next_event();
                if (!event) break;
                take(*event);
            }
        } catch (const std::exception& e) {
            if (phase_ != phase::running) throw;
            broken = std::string("what the gateway tells makes no sense: ") + e.what();
        }
        if (phase_ == phase::asking) throw unreachable("the gateway broke the connection before it granted the lease");
        if (phase_ == phase::done) io_.stop();
        lose(broken);
    }

    void take(const stream_event& event) {
        if (phase_ == phase::lost || phase_ == phase::done) return;
        const json::value parsed = json::parse(event.data);
        const json::object& lease = parsed.as_object();
        if (event.name == "granted" && phase_ == phase::asking) {
            lease_id_ = text(lease, "lease_id");
            arm(lease);
            command_.start(wanted_.command,
                           {{"FENCING_TOKEN", shown(lease, "fencing_token")},
                            {"FENCING_LEASE", lease_id_},
                            {"FENCING_RESOURCE", joined(wanted_.resources)}},
                           handled_);
            phase_ = phase::running;
        } else if (event.name == "renewed") {
            arm(lease);
        } else if (event.name == "lost" || event.name == "released") {
            lose(text(lease, "reason"));
        }
    }

    /// No news is bad news: a gateway that hangs or is cut off tells nothing.
    void arm(const json::object& lease) { arm(milliseconds(number(lease, "validity_ms").value_or(0))); }

    void arm(milliseconds from_now) {
        lease_ends_.expires_after(from_now);
        lease_ends_.async_wait([this](const error_code& ec) {
            if (ec) return;
            // We may have been stopped (Ctrl-Z) while the renewals came.
            if (to_.has_unread()) return arm(look_again);
            lose("it ran out, and the gateway told nothing");
        });
    }

    void lose(const std::string& why) {
        if (phase_ != phase::running) return;
        phase_ = phase::lost;
        say("the lease on " + joined(wanted_.resources) + " is lost (" + why + "); ending the command");
        command_.end();
        kill_.expires_after(wanted_.kill_after);
        kill_.async_wait([this](const error_code& ec) {
            if (!ec) command_.signal(SIGKILL);
        });
    }

    void command_ended(int status) {
        lease_ends_.cancel();
        if (phase_ == phase::lost) return see_off();
        phase_ = phase::done;
        code_ = exit_code_of(status);
        if (wanted_.seal) seal();
        to_.finish();
        // The end of the stream says that the lease is released; otherwise it runs out by itself.
        release_.expires_after(gateway_.timeout());
        release_.async_wait([this](const error_code& ec) {
            if (!ec) io_.stop();
        });
    }

    /// What the command started has as long as the command itself to end.
    void see_off() {
        if (command_.left_something() && kill_.expiry() > std::chrono::steady_clock::now()) {
            release_.expires_after(look_again);
            release_.async_wait([this](const error_code& ec) {
                if (!ec) see_off();
            });
            return;
        }
        command_.kill_rest();
        finish(exit_lease_lost);
    }

    void seal() {
        request what;
        what.method = "DELETE";
        what.target = "/v1/leases/" + encode(lease_id_) + "?seal=true";
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
        code_ = code;
        io_.stop();
    }

    const client& gateway_;
    guarded_command& command_;
    const lock_options& wanted_;
    asio::io_context io_{1};
    wire to_;
    asio::signal_set signals_;
    asio::steady_timer lease_ends_, kill_, release_;
    std::vector<int> handled_;
    std::string lease_id_;
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
