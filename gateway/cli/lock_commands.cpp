#include <gateway/cli/commands.hpp>

#include <gateway/cli/duration_option.hpp>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

// lock and elect, which run a command.

namespace fencegate::cli {
namespace {

using std::chrono::milliseconds;

/// The number of resources that a gateway accepts in a request.
constexpr std::size_t any_of_max = 64;

/// Returns the names, of which one with {A..B} is replaced by a name for each number from A to B.
std::vector<std::string> expand_ranges(const std::vector<std::string>& names) {
    std::vector<std::string> out;
    for (const std::string& name : names) {
        const std::size_t open = name.find('{'), dots = name.find("..", open), close = name.find('}', dots);
        std::size_t first = 0, last = 0;
        const auto read = [&name](std::size_t from, std::size_t to, std::size_t& number) {
            const char* const end = name.data() + to;
            return from < to && std::from_chars(name.data() + from, end, number).ptr == end;
        };
        if (close == std::string::npos || !read(open + 1, dots, first) || !read(dots + 2, close, last)) {
            out.push_back(name);
            continue;
        }
        if (first > last || last - first >= any_of_max)
            throw usage_error(name + " does not stand for 1 to " + std::to_string(any_of_max) + " names");
        for (; first <= last; ++first)
            out.push_back(name.substr(0, open) + std::to_string(first) + name.substr(close + 1));
    }
    return out;
}

const char* const lock_help =
    R"(This program renews the lease while the command runs, at any of the gateways of --url, and releases it when the
command ends. The lease expires after its ttl if this program is stopped or its machine dies. The command has
FENCING_TOKEN, FENCING_LEASE (the lease_id) and FENCING_RESOURCE (several are separated by line feeds) in its
environment, and receives the signals sent to this program. With --any-of FENCING_RESOURCE is the one that is held;
it does not name what --with-shared adds.
Without a command the lease is held until INT, TERM, HUP or QUIT, and the variables are printed; several
resources need a command.
The command never starts under a lease that has expired by this machine's clock, even after
the gateway, the network or this machine was suspended.
The command may run for --max-hold. A minute before that time is over a warning is printed; SIGTERM is sent
--kill-after before it is over, and SIGKILL when it is over. Neither the minute nor --kill-after is more than a
tenth of --max-hold.
Without --wait this program waits without limit, also through restarts of the gateway, and keeps its place in
the queue; only the first request has to be answered. On a terminal it prints who holds the lease, if the API
key has the scope history. Ctrl-C while it waits leaves the queue.
When the lease is lost (it was revoked, or no gateway renewed it while it was valid), the command and its
process group get SIGTERM, and SIGKILL after --kill-after. A command that hangs can still write too late; the
fence in the database refuses that write if the command writes with its token:
  fencegate lock inventory/sku-1 -- sh -c 'psql -v ON_ERROR_STOP=1 -v token=$FENCING_TOKEN -f sell.sql'
where sell.sql is
  begin;
  select fencing.enter('inventory/sku-1', :token);
  update inventory set stock = stock - 3 where sku = 'sku-1';
  commit;
--at-least and --every are for commands that several machines start by a schedule; neither uses the clock of a
machine. --at-least keeps the lease for that time from the start, even if this program is killed; at most the
gateway's lease.max_ttl_ms. --every TIME runs the command once a tick of a schedule with this period: not within
half of TIME after its last start, which RESOURCE@tick has in the history, by the clock of PostgreSQL. It needs the
scope history for both names. A tick whose start was recorded is not run again, also if the machine died then.
Exit codes: the command's own (128 and the signal's number if a signal killed it; 127 not found, 126 not
executable); 65 the lease was lost and the command was ended; 124 the lease was held for --max-hold and the
command was ended; 75 (or that of -E) not granted in time, or the tick was started already; 69 no gateway
answers, or it can't grant; 77 the API key is missing, unknown or lacks the scope leases; 64 wrong arguments;
1 the gateway refused for another reason. The API key comes from FENCEGATE_API_KEY or --api-key-file, never
from an argument. A gateway on another machine is called through the proxy of http_proxy, https_proxy or
all_proxy, unless no_proxy names it.
Examples:
  fencegate lock --wait 10s jobs/nightly -- ./nightly --all
  fencegate lock -n -E 0 --every 5m jobs/report -- ./report
  fencegate lock --any-of 'exports/{1..4}' -- ./export
  fencegate lock --shared prices/eu -- ./report
  fencegate lock --with-shared prices/eu orders/7 -- ./price 7
  fencegate lock --seal orders/1001 inventory/sku-1 -- ./ship 1001)";

const char* const elect_help =
    R"(Waits until this process is the leader, the only holder of the lease on NAME, and runs the command for as long
as it is. The term is the fencing token, which grows with every leader: the command has it as FENCING_TOKEN, and
FENCING_LEASE and FENCING_RESOURCE as with fencegate lock. This program renews the lease; its holder is named
HOST/PID/ID in `fencegate leases --prefix NAME`.
When the leadership is lost, or the term has lasted for --max-hold, the command and its process group get SIGTERM,
and SIGKILL after --kill-after; then this program competes again, also while no gateway answers. With --exit-on-loss
it exits instead. When the command ends by itself, the leadership is given up. Signals sent to this program are
forwarded to the command; after INT, TERM or QUIT it does not compete again. Without a command the leadership is
held until INT, TERM, HUP or QUIT, and the variables are printed in each term.
Exit codes: the command's own (128 and the signal's number if a signal killed it; 127 not found, 126 not
executable); with --exit-on-loss 65 the leadership was lost, 124 the term lasted for --max-hold; 69 no gateway
answers the first request, or it can't grant; 77 the API key is missing, unknown or lacks the scope leases;
64 wrong arguments; 1 the gateway refused for another reason. The API key comes from FENCEGATE_API_KEY or
--api-key-file, never from an argument.
Example:
  fencegate elect services/mailer -- ./mailer --send)";

/// Prints a usage line with the program after `--`, which the parser never sees.
class lock_formatter : public CLI::Formatter {
  public:
    explicit lock_formatter(std::string words) : words_(std::move(words)) {}
    std::string make_usage(const CLI::App*, std::string) const override {
        return "Usage: fencegate " + words_ + " [-- COMMAND [ARGUMENT...]]\n";
    }

  private:
    std::string words_;
};

}  // namespace

void commands::add_lock() {
    CLI::App& command = add("lock", "Run a command while a lease is held", lock_help);
    command.formatter(std::make_shared<lock_formatter>("lock [OPTIONS] RESOURCE..."));
    command.add_option("RESOURCE", lock_.resources, "The resources to lock: all or none, under one token")->required();
    command.add_flag("--any-of", lock_.any_of,
                     "Lock any one of the resources: one that is free, or the first that becomes free. A name such as "
                     "'gpu/{1..4}' means gpu/1 to gpu/4");
    auto* shared = command.add_flag("--shared", lock_.is_shared,
                                    "Share the resources with others that lock them so; nobody else locks them then");
    shared->excludes(command.get_option("--any-of"));
    command.add_option("--with-shared", lock_.shared, "A further resource, which is shared; may be repeated")
        ->allow_extra_args(false)
        ->excludes(shared)
        ->excludes(command.get_option("--any-of"));
    auto* wait = add_duration(command, "--wait", lock_.wait, "Maximum time to wait for the lease [without limit]");
    command
        .add_flag_callback(
            "-n,--no-wait", [this] { lock_.wait = milliseconds{0}; }, "As --wait 0: try once, without waiting")
        ->excludes(wait);
    command
        .add_option("-E,--conflict-exit-code", lock_.conflict_exit_code,
                    "Exit code when the lease is not granted in time or the tick was started; 0 prints no message")
        ->check(CLI::Range(0, 255))
        ->capture_default_str();
    add_holding_options(command);
    auto* owner = command.add_option("--owner", lock_.owner,
                                     "Name of the holder, which may hold the same resource several times");
    command
        .add_flag("--seal", lock_.seal,
                  "At the end, raise the fence above the token, so that no process the command left can write with it")
        ->excludes(owner)
        ->excludes(shared);
    auto* at_least = add_duration(command, "--at-least", lock_.at_least,
                                  "Minimum time to hold the lease, also after a command that ends early or is killed",
                                  milliseconds{100});
    at_least->excludes(owner)->excludes(command.get_option("--seal"));
    add_duration(command, "--every", lock_.every, "Period of a schedule: run the command once in each tick", every_min)
        ->excludes(owner)
        ->excludes(shared);
}

void commands::add_elect() {
    CLI::App& command = add("elect", "Run a command while this process is the leader", elect_help);
    command.formatter(std::make_shared<lock_formatter>("elect [OPTIONS] NAME"));
    command.add_option("NAME", lock_.resources, "The resource that the leader holds")->required()->expected(1);
    add_holding_options(command);
    command.add_flag("--exit-on-loss", lock_.exit_on_loss, "Exit when the leadership is lost, instead of competing");
}

void commands::add_holding_options(CLI::App& command) {
    add_duration(command, "--max-hold", lock_.max_hold,
                 "Maximum time to hold the lease [the gateway's lease.max_hold_ms: 24h]", milliseconds{1});
    add_duration(command, "--ttl", lock_.ttl, "Time after which an unrenewed lease expires [the gateway's default]",
                 milliseconds{1});
    add_duration(command, "--kill-after", lock_.kill_after,
                 "Time from SIGTERM to SIGKILL when the lease is lost or --max-hold ends [5s]");
}

int commands::run_lock(bool elect) {
    if (has_empty_program_) throw usage_error("no command after --");
    std::ranges::for_each(lock_.resources, show_bracket);
    std::ranges::for_each(lock_.shared, show_bracket);
    show_bracket(lock_.owner);
    if (lock_.any_of) lock_.resources = expand_ranges(lock_.resources);
    const bool several = lock_.resources.size() > 1;
    if (lock_.any_of && !several) throw usage_error("--any-of needs two resources or more");
    if (several && lock_.every) throw usage_error("--every takes one RESOURCE");
    // flock takes its command without a mark: such a command line would lock the command's words for ever.
    if (several && lock_.command.empty()) throw usage_error("several resources need a command after --");
    lock_.elect = elect;
    return run_locked(gateway_, lock_);
}

}  // namespace fencegate::cli
