#include <gateway/cli/commands.hpp>

#include <gateway/cli/arguments.hpp>
#include <gateway/cli/completion.hpp>
#include <gateway/cli/duration_option.hpp>
#include <gateway/cli/listings.hpp>
#include <gateway/cli/output.hpp>
#include <gateway/domain/exit_code.hpp>
#include <gateway/runtime/text.hpp>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <span>
#include <string_view>

namespace fencegate::cli {
namespace {

using std::chrono::milliseconds;

constexpr std::size_t limit_max = 1'000'000;
/// The command that the scripts of shells call, and how long it waits for an answer of the gateway.
constexpr const char* complete_command = "__complete";
constexpr milliseconds completion_timeout{2'000};

const char* const exit_codes =
    "Exit codes: 0 done, 1 the gateway refused or is not ready, 64 wrong arguments, 69 no gateway answers.\n"
    "The API key comes from FENCEGATE_API_KEY in the environment or from --api-key-file, never from an argument.\n"
    "A gateway on another machine is called through the proxy of http_proxy, https_proxy or all_proxy, unless\n"
    "no_proxy names it.\n";

/// The number of resources that a gateway accepts in a request.
constexpr std::size_t any_of_max = 64;

/// Returns the names, of which one with {A..B} is replaced by a name for each number from A to B, as in bash.
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
environment, and receives the signals sent to this program. With --any-of FENCING_RESOURCE is the one that is held.
Without a command the lease is held until INT, TERM, HUP or QUIT, and the variables are printed; several resources need a command.
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

CLI::Option* add_time(CLI::App& command, const char* name, std::string& target, const std::string& description) {
    const auto parse = [name, &target](const std::string& given) {
        const auto at = parse_time_argument(given, std::chrono::system_clock::now());
        if (!at)
            throw CLI::ValidationError(
                name, given + " is no time such as 2026-11-21T10:00:00Z, 2026-11-21, yesterday or -1h");
        target = *at;
    };
    return command.add_option_function<std::string>(name, parse, description)->type_name("TIME");
}

}  // namespace

commands::commands(CLI::App& app) : app_(app) {
    add_status();
    add_leases();
    add_resources();
    add_history();
    add_changes();
    add_lock();
    add_elect();
    add_interventions();
    add_completion();
    // Not with CLI11's envname: every subcommand shares this variable, and the environment of one that was not called
    // would overwrite the argument of the one that was. After the options: their help has the default URL, and must not
    // show one that may contain a password.
    if (const char* url = std::getenv("FENCEGATE_URL"); url != nullptr && *url != '\0') {
        gateway_.url = url;
        gateway_.url_source = "FENCEGATE_URL";
    }
}

CLI::App& commands::add(const std::string& name, const std::string& help, const std::string& footer) {
    CLI::App& command = *app_.add_subcommand(name, help);
    command.footer(footer);
    subcommands_.push_back(&command);
    if (name == "completion") return command;
    command
        .add_option("--url", gateway_.url,
                    "URL of the gateway, or of several, separated by commas; overrides FENCEGATE_URL")
        ->type_name("URL")
        ->capture_default_str();
    command.add_option("--cacert", gateway_.cacert, "Certificates (PEM) that https trusts instead of the system's")
        ->type_name("FILE");
    command.add_option("--cert", gateway_.cert, "Certificate (PEM) of this caller for https, with its chain")
        ->type_name("FILE");
    command.add_option("--key", gateway_.key, "Key (PEM, not encrypted) of --cert; without, that file has it")
        ->type_name("FILE");
    command.add_option("--api-key-file", gateway_.api_key_file, "File with the API key; overrides FENCEGATE_API_KEY")
        ->type_name("FILE");
    command
        .add_option("--cell", gateway_.cell,
                    "Cell for which the requests are: another one refuses them, and a proxy routes by it")
        ->type_name("N")
        ->check(CLI::Range(0U, 65'535U));
    add_duration(command, "--timeout", gateway_.timeout, "How long to wait for each answer [10s]", milliseconds{1});
    if (name != "lock" && name != "elect" && name != "resources")
        command.add_flag("--json", json_, "Print JSON lines on a terminal too");
    return command;
}

CLI::App& commands::add(const std::string& name, const std::string& help, const std::string& footer,
                        std::function<int(const client&, bool)> run) {
    added_[name] = std::move(run);
    return add(name, help, footer);
}

void commands::add_status() {
    add("status", "Show whether a gateway is ready, its Redis nodes and the guard",
        std::string(exit_codes) +
            "Prints a table on a terminal, JSON lines in a pipe: first the gateway, then each node as GET /v1/nodes "
            "returns it, the guard as GET /v1/guard does, and the keys.\n"
            "Listing the nodes and the guard needs the scope `operate`.\nExample:\n  fencegate status --url "
            "http://gateway-1:8080");
}

void commands::add_leases() {
    CLI::App& command =
        add("leases", "List the live leases: resource, holder, token, time left, holds",
            std::string(exit_codes) + "Example:\n  fencegate leases --prefix inventory/ | jq -r .resource");
    command.add_option("--prefix", leases_.prefix, "Only resources whose names begin with TEXT")->type_name("TEXT");
    command.add_option("--limit", leases_.limit, "Maximum number of rows")
        ->check(CLI::Range(std::size_t{1}, limit_max))
        ->capture_default_str();
}

void commands::add_resources() {
    CLI::App& command =
        add("resources", "List names of resources: those with a live lease, and those of the newest events",
            std::string(exit_codes) +
                "One name in a line. Needs the scope `history`. The completion of a shell offers the same.\nExample:\n"
                "  fencegate resources --prefix jobs/");
    command.add_option("--prefix", resource_prefix_, "Only resources whose names begin with TEXT")->type_name("TEXT");
}

void commands::add_history() {
    CLI::App& command = add(
        "history", "Show what happened: grants, releases, writes, refusals; newest first",
        std::string(exit_codes) +
            "Times are as in RFC 3339, for example 2026-11-21T10:00:00Z; or a day, 2026-11-21, today or yesterday,\n"
            "which is its beginning in UTC; or now; or a time ago by the clock of this machine, -30m, -2h or -7d.\n"
            "Examples:\n"
            "  fencegate history --resource inventory/sku-1 --limit 20\n"
            "  fencegate history --event write_rejected --event lease_revoked --from -1h --asc | jq .detail\n"
            "  fencegate history --from yesterday --to today --csv > yesterday.csv\n"
            "  fencegate history --event write_rejected --follow");
    add_filters(command, history_, "events");
    command.add_option("--event", history_.events, "Only events of this type; may be given several times")
        ->type_name("TEXT")
        ->allow_extra_args(false)
        ->delimiter(',')
        ->check(
            CLI::IsMember({"lease_granted", "lease_renewed", "lease_released", "lease_expired", "lease_refused",
                           "lease_revoked", "fence_raised", "write_applied", "write_rejected", "write_failed",
                           "write_replayed", "node_quarantined", "node_readmitted", "epoch_raised", "request_denied",
                           "guard_changed", "storage_generation_changed", "configuration_reloaded"}));
    auto* const at =
        add_time(command, "--at", history_.at, "Show the resource as it was at this time, in place of events")
            ->needs(command.get_option("--resource"));
    for (const char* other : {"--from", "--to", "--asc", "--limit", "--csv"})
        at->excludes(command.get_option(other));
    command.add_option("--owner", history_.owner, "Only events of this owner")->type_name("TEXT");
    command.add_option("--trace-id", history_.trace_id, "Only events of this trace")->type_name("TEXT");
    auto* const follow = command
                             .add_flag("--follow,-f", follow_,
                                       "Print new events as they are recorded; reconnects when the connection breaks")
                             ->excludes(command.get_option("--asc"))
                             ->excludes(command.get_option("--limit"))
                             ->excludes(command.get_option("--csv"));
    command
        .add_option("--after", history_.after, "With --follow: begin after the event with this id; 0: with the first")
        ->type_name("ID")
        ->needs(follow);
    command
        .add_option("--place", history_.place,
                    "With --follow: keep the id of the last printed event in this file, and begin after it if the file "
                    "exists; after an end by force an event can be printed twice")
        ->type_name("FILE")
        ->needs(follow);
}

void commands::add_changes() {
    CLI::App& command = add("changes", "Show which rows changed, from which values to which; newest first",
                            std::string(exit_codes) +
                                "Of tables for which fencing.record_changes() was called. Times are as in history.\n"
                                "Examples:\n"
                                "  fencegate changes --table public.inventory --row sku=sku-1\n"
                                "  fencegate changes --write-id 01a1fc68-4bc4-7371-881a-fddb4432f9eb | jq .new\n"
                                "  fencegate changes --column price --from yesterday --csv > prices.csv");
    add_filters(command, changes_, "changes");
    command.add_option("--table", changes_.table, "Only changes of this table, with its schema")->type_name("TEXT");
    command
        .add_option("--row", changes_.key,
                    "Only changes of the row whose primary key has this value; once for each of its columns")
        ->type_name("COLUMN=VALUE")
        ->allow_extra_args(false)
        ->check([](const std::string& given) {
            return given.find('=') == std::string::npos ? "has to be COLUMN=VALUE" : std::string();
        });
    command.add_option("--column", changes_.column, "Only changes with a value of this column")->type_name("TEXT");
}

void commands::add_filters(CLI::App& command, history_filter& filter, const std::string& items) {
    const auto text = [&](const char* name, std::string& target, const char* which, const char* type = "TEXT") {
        command.add_option(name, target, "Only " + items + " " + which)->type_name(type);
    };
    text("--resource", filter.resource, "of this resource");
    text("--prefix", filter.prefix, "of resources whose names begin with TEXT");
    text("--principal", filter.principal, "of this principal");
    text("--token-min", filter.token_min, "with this token or a higher one", "TOKEN");
    text("--token-max", filter.token_max, "with this token or a lower one", "TOKEN");
    text("--write-id", filter.write_id, "of this write", "UUID");
    add_time(command, "--from", filter.from, "Only " + items + " at or after this time");
    add_time(command, "--to", filter.to, "Only " + items + " before this time");
    command.add_flag("--asc", filter.ascending, "Oldest first");
    command.add_option("--limit", filter.limit, "Maximum number of rows [100; all with --csv]")
        ->check(CLI::Range(std::size_t{1}, limit_max));
    command.add_flag("--csv", csv_, "Print CSV (RFC 4180) with a header line")->excludes(command.get_option("--json"));
}

void commands::add_lock() {
    CLI::App& command = add("lock", "Run a command while a lease is held", lock_help);
    command.formatter(std::make_shared<lock_formatter>("lock [OPTIONS] RESOURCE..."));
    command.add_option("RESOURCE", lock_.resources, "The resources to lock: all or none, under one token")->required();
    command.add_flag("--any-of", lock_.any_of,
                     "Lock any one of the resources: one that is free, or the first that becomes free. A name such as "
                     "'gpu/{1..4}' stands for gpu/1 to gpu/4");
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
        ->excludes(owner);
    auto* at_least = add_duration(command, "--at-least", lock_.at_least,
                                  "Minimum time to hold the lease, also after a command that ends early or is killed",
                                  milliseconds{100});
    at_least->excludes(owner)->excludes(command.get_option("--seal"));
    add_duration(command, "--every", lock_.every, "Period of a schedule: run the command once in each tick", every_min)
        ->excludes(owner);
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

void commands::add_interventions() {
    CLI::App& revoke = add("revoke", "Revoke leases: their holders can write no more",
                           std::string(exit_codes) +
                               "Needs the scope `operate` for all resources of the lease, which is revoked on all of "
                               "them.\nThe fence is raised above its token first.\nExample:\n"
                               "  fencegate revoke jobs/nightly --reason 'the holder hangs'",
                           [this](const client& gateway, bool json) {
                               std::ranges::for_each(revocation_.resources, show_bracket);
                               return revoke_leases(gateway, revocation_, json);
                           });
    revoke.add_option("RESOURCE", revocation_.resources, "The resources")->required();
    revoke.add_option("--token", revocation_.token, "Only a lease with this token")->type_name("TOKEN");
    CLI::App& repair = add("repair", "Set the fence of a resource, also to a lower token",
                           std::string(exit_codes) +
                               "Needs the scope `operate`. Asks before it lowers a fence: then holders of older tokens "
                               "can write again.\nExample:\n  fencegate repair inventory/sku-1 --fence 41 --reason "
                               "'a test wrote with token 900000'",
                           [this](const client& gateway, bool json) {
                               show_bracket(repair_.resource);
                               return repair_fence(gateway, repair_, json);
                           });
    repair.add_option("RESOURCE", repair_.resource, "The resource")->required();
    repair.add_option("--fence", repair_.fence, "The fence: tokens below it are refused")
        ->type_name("TOKEN")
        ->required();
    repair.add_flag("--yes", repair_.confirmed, "Lower the fence without asking");
    for (auto& [command, reason] :
         {std::pair<CLI::App*, std::string*>{&revoke, &revocation_.reason}, {&repair, &repair_.reason}})
        command->add_option("--reason", *reason, "Why; the history keeps it")->type_name("TEXT")->required();
}

void commands::add_completion() {
    CLI::App& command = add("completion", "Print a script that completes these commands in a shell",
                            "Examples:\n  source <(fencegate completion bash)\n"
                            "  mkdir -p ~/.zfunc && fencegate completion zsh > ~/.zfunc/_fencegate\n"
                            "  mkdir -p ~/.config/fish/completions && fencegate completion fish > "
                            "~/.config/fish/completions/fencegate.fish");
    command.add_option("SHELL", shell_, "Which shell")->required()->check(CLI::IsMember({"bash", "zsh", "fish"}));
    subcommands_.push_back(app_.add_subcommand(complete_command)->group(""));  // hidden: for the scripts
}

int commands::extract_program(int argc, char** argv) {
    if (argc > 1 && std::string_view(argv[1]) == complete_command) {
        begun_line_.assign(argv + 2, argv + argc);
        return 2;
    }
    const std::string_view name = argc < 2 ? "" : argv[1];
    if (name == "revoke" || name == "repair") hide_brackets(argc, argv);
    if (name != "lock" && name != "elect") return argc;
    char** const end = argv + argc;
    char** const mark = std::find_if(argv, end, [](const char* word) { return std::string_view(word) == "--"; });
    hide_brackets(static_cast<int>(mark - argv), argv);
    if (mark == end) return argc;
    lock_.command.assign(mark + 1, end);
    has_empty_program_ = lock_.command.empty();
    return static_cast<int>(mark - argv);
}

void commands::hide_brackets(int argc, char** argv) {
    for (char*& word : std::span(argv, static_cast<std::size_t>(argc)).subspan(2)) {
        const std::string_view text = word;
        if (text.starts_with('[') && text.ends_with(']'))
            word = hidden_.emplace_back(bracket_mark + std::string(text)).data();
    }
}

void commands::show_bracket(std::string& word) {
    if (word.starts_with(bracket_mark)) word.erase(0, 1);
}

std::optional<int> commands::run() {
    for (const CLI::App* command : subcommands_) {
        if (!command->parsed()) continue;
        const auto* const url = command->get_option_no_throw("--url");
        if (url != nullptr && url->count() > 0) gateway_.url_source = "--url";
        try {
            return run(command->get_name());
        } catch (const usage_error& e) {
            runtime::print_error(command->get_name(), e.what());
            return exit_usage;
        } catch (const gateway_unreachable& e) {
            runtime::print_error(command->get_name(), e.what());
            return exit_unavailable;
        } catch (const gateway_refusal& e) {
            runtime::print_error(command->get_name(), e.what());
            return e.status == 400 ? exit_usage : exit_failed;
        }
    }
    return std::nullopt;
}

int commands::run(const std::string& name) {
    if (const auto added = added_.find(name); added != added_.end()) return added->second(client(gateway_), json_);
    if (name == "completion") {
        std::cout << completion_script(shell_);
    } else if (name == complete_command) {
        gateway_.timeout = completion_timeout;
        print_completions(app_, begun_line_,
                          [this](const std::string& prefix) { list_resources(client(gateway_), prefix); });
    } else if (name == "lock" || name == "elect") {
        if (has_empty_program_) throw usage_error("no command after --");
        std::ranges::for_each(lock_.resources, show_bracket);
        show_bracket(lock_.owner);
        if (lock_.any_of) lock_.resources = expand_ranges(lock_.resources);
        const bool several = lock_.resources.size() > 1;
        if (lock_.any_of && !several) throw usage_error("--any-of needs two resources or more");
        if (several && lock_.every) throw usage_error("--every takes one RESOURCE");
        // flock takes its command without a mark: such a command line would lock the command's words for ever.
        if (several && lock_.command.empty()) throw usage_error("several resources need a command after --");
        lock_.elect = name == "elect";
        return run_locked(gateway_, lock_);
    } else if (name == "resources") {
        list_resources(client(gateway_), resource_prefix_);
    } else if (name == "status") {
        return show_status(client(gateway_), json_);
    } else if (name == "leases") {
        list_leases(client(gateway_), leases_, json_);
    } else if (csv_) {
        const bool history = name == "history";
        print_csv(client(gateway_), history ? "/v1/history" : "/v1/changes", history ? history_ : changes_);
    } else if (name == "changes") {
        list_changes(client(gateway_), changes_, json_);
    } else if (!history_.at.empty()) {
        show_resource_at(client(gateway_), history_, json_);
    } else if (follow_) {
        follow_history(client(gateway_), history_, json_);
    } else {
        list_history(client(gateway_), history_, json_);
    }
    return exit_ok;
}

void refuse_empty_values(CLI::App& app) {
    const auto check = [](const std::string& value) -> std::string { return value.empty() ? "has no value" : ""; };
    for (CLI::App* command : app.get_subcommands({})) {
        for (CLI::Option* option : command->get_options()) {
            // A script may complete an empty word by all resources.
            const bool completes = command->get_name() == "resources" && option->check_lname("prefix");
            if (option->get_items_expected_max() > 0 && !completes) option->check(check);
        }
    }
}

}  // namespace fencegate::cli
