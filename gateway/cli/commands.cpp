#include <gateway/cli/commands.hpp>

#include <gateway/app.hpp>
#include <gateway/cli/completion.hpp>
#include <gateway/cli/duration.hpp>
#include <gateway/cli/status.hpp>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <string_view>

namespace fencegate::cli {
namespace {

using std::chrono::milliseconds;

constexpr std::size_t limit_max = 1'000'000;

const char* const exit_codes =
    "Exit codes: 0 done, 1 the gateway refused or is not ready, 64 wrong arguments, 69 no gateway answers.\n"
    "The API key is taken from the environment's FENCEGATE_API_KEY or from --api-key-file, never from an argument.\n"
    "A gateway on another machine is called by the proxy of http_proxy, https_proxy or all_proxy, unless no_proxy "
    "names "
    "it.\n";

/// An option that is a length of time. `into` is given it.
template <typename Into>
CLI::Option* add_duration(CLI::App& to, const std::string& name, Into& into, const std::string& help) {
    const auto read = [&into, name](const std::string& given) {
        const auto length = parse_duration(given);
        if (!length)
            throw CLI::ValidationError(
                name, given + " is no length of time of at most 1000h, such as 500ms, 10s, 2m, 1h or 2d");
        into = *length;
    };
    return to.add_option_function<std::string>(name, read, help)->type_name("TIME");
}

/// CLI11 knows nothing of what follows `--`.
class lock_formatter : public CLI::Formatter {
  public:
    std::string make_usage(const CLI::App*, std::string) const override {
        return "Usage: fencegate lock [OPTIONS] RESOURCE... -- COMMAND [ARGUMENT...]\n";
    }
};

}  // namespace

commands::commands(CLI::App& app) : app_(app) {
    // Not by CLI11, which would let it go before an argument of another subcommand that has the same variable.
    if (const char* url = std::getenv("FENCEGATE_URL"); url != nullptr && *url != '\0') gateway_.url = url;
    add_status();
    add_leases();
    add_history();
    add_lock();
    add_completion();
}

CLI::App& commands::add(const std::string& name, const std::string& help, const std::string& footer) {
    CLI::App& command = *app_.add_subcommand(name, help);
    command.footer(footer);
    all_.push_back(&command);
    if (name == "completion") return command;
    command.add_option("--url", gateway_.url, "The gateway, http or https; before the environment's FENCEGATE_URL")
        ->type_name("URL")
        ->capture_default_str();
    command.add_option("--cacert", gateway_.cacert, "Over https trust these certificates (PEM), not the system's")
        ->type_name("FILE");
    command.add_option("--api-key-file", gateway_.api_key_file, "A file with the API key; before FENCEGATE_API_KEY")
        ->type_name("FILE");
    add_duration(command, "--timeout", gateway_.timeout, "How long to wait for each answer [10s]");
    if (name != "lock") command.add_flag("--json", json_, "JSON lines on a terminal too");
    return command;
}

void commands::add_status() {
    add("status", "Show whether a gateway is ready, and its Redis nodes",
        std::string(exit_codes) +
            "A table on a terminal, JSON lines in a pipe: first the gateway, then each node as GET /v1/nodes has it.\n"
            "The nodes need the scope `operate`.\nExample:\n  fencegate status --url http://gateway-1:8080");
}

void commands::add_leases() {
    CLI::App& command =
        add("leases", "List the live leases: resource, holder, token, time left, holds",
            std::string(exit_codes) + "Example:\n  fencegate leases --prefix inventory/ | jq -r .resource");
    command.add_option("--prefix", leases_.prefix, "Only resources whose names begin so")->type_name("TEXT");
    command.add_option("--limit", leases_.limit, "At most so many")
        ->check(CLI::Range(std::size_t{1}, limit_max))
        ->capture_default_str();
}

void commands::add_history() {
    CLI::App& command =
        add("history", "Show what happened: grants, releases, writes, refusals; newest first",
            std::string(exit_codes) +
                "Times as in RFC 3339, 2026-11-21T10:00:00Z.\nExamples:\n"
                "  fencegate history --resource inventory/sku-1 --limit 20\n"
                "  fencegate history --event write_rejected --from 2026-11-21T10:00:00Z --asc | jq .detail\n"
                "  fencegate history --event write_rejected --follow");
    const auto text = [&](const char* name, std::string& into, const char* help, const char* type = "TEXT") {
        return command.add_option(name, into, help)->type_name(type);
    };
    text("--resource", history_.resource, "Of this resource");
    text("--prefix", history_.prefix, "Of resources whose names begin so");
    text("--event", history_.event, "Of this kind")
        ->check(CLI::IsMember({"lease_granted", "lease_renewed", "lease_released", "lease_expired", "lease_refused",
                               "lease_revoked", "fence_raised", "write_applied", "write_rejected", "write_failed",
                               "node_quarantined", "node_readmitted", "epoch_raised"}));
    text("--owner", history_.owner, "Of this owner");
    text("--principal", history_.principal, "Of this principal");
    text("--token-min", history_.token_min, "With this token or a newer one", "TOKEN");
    text("--token-max", history_.token_max, "With this token or an older one", "TOKEN");
    text("--trace-id", history_.trace_id, "Of this trace");
    text("--write-id", history_.write_id, "Of this write", "UUID");
    text("--from", history_.from, "Since then", "TIME");
    text("--to", history_.to, "Until then", "TIME");
    auto* asc = command.add_flag("--asc", history_.ascending, "Oldest first");
    auto* limit = command.add_option("--limit", history_.limit, "At most so many")
                      ->check(CLI::Range(std::size_t{1}, limit_max))
                      ->capture_default_str();
    command.add_flag("--follow,-f", follow_, "What is still to come, as it comes, over broken connections too")
        ->excludes(asc)
        ->excludes(limit);
}

void commands::add_lock() {
    CLI::App& command = add(
        "lock", "Run a command while a lease is held",
        "The gateway renews the lease while the command runs; it is given back when that ends, and at the latest "
        "after\n"
        "its ttl if this program or the gateway is killed. The command has FENCING_TOKEN, FENCING_LEASE (the "
        "lease_id)\n"
        "and FENCING_RESOURCE (several: with commas) in its environment, and gets INT, TERM and HUP sent to us.\n"
        "The command is started under a lease that is ours by our own clock, also where the gateway, the network or "
        "this\n"
        "machine stood still. It may hold the lease for --max-hold: that is announced a minute before (a tenth of it "
        "where\n"
        "that is less); --kill-after before its end (or a tenth of it) the command gets SIGTERM, at its end SIGKILL.\n"
        "Without --wait it waits for as long as it takes, also through restarts of the gateway, and keeps its place "
        "among\n"
        "those who wait there; only the very first answer has to come. A terminal is told who holds it, where the API "
        "key\n"
        "has the scope history. Ctrl-C leaves nothing behind.\n"
        "Where the lease is lost (an operator took it, the gateway stopped or can't be reached any more), the command\n"
        "and all of its process group get SIGTERM, and SIGKILL after --kill-after. A command that writes all the same\n"
        "is too late by itself: what protects the data is the fence in the database. So let it write with its token:\n"
        "  fencegate lock inventory/sku-1 -- sh -c 'psql -v ON_ERROR_STOP=1 -v token=$FENCING_TOKEN -f sell.sql'\n"
        "where sell.sql is\n"
        "  begin;\n"
        "  select fencing.enter('inventory/sku-1', :token);\n"
        "  update inventory set stock = stock - 3 where sku = 'sku-1';\n"
        "  commit;\n"
        "Exit codes: the command's own (128 and the signal's number if one killed it; 127 not found, 126 not\n"
        "executable); 65 the lease was lost and the command ended; 124 --max-hold was over and the command ended; 75 "
        "not\n"
        "granted in time; 69 no gateway, or it can't grant; 77 the API key is not enough; 64 wrong arguments. The API "
        "key is taken from FENCEGATE_API_KEY or\n"
        "--api-key-file, never from an argument. A gateway on another machine is called by the proxy of http_proxy,\n"
        "https_proxy or all_proxy, unless no_proxy names it.\n"
        "Examples:\n"
        "  fencegate lock --wait 10s jobs/nightly -- ./nightly --all\n"
        "  fencegate lock --no-wait --max-hold 2h jobs/nightly -- ./nightly --all\n"
        "  fencegate lock --seal orders/1001 inventory/sku-1 -- ./ship 1001");
    command.formatter(std::make_shared<lock_formatter>());
    command.add_option("RESOURCE", lock_.resources, "All of them or none; one token for all")->required();
    auto* wait = add_duration(command, "--wait", lock_.wait, "How long to wait for it at most [without limit]");
    command
        .add_flag_callback(
            "--no-wait", [this] { lock_.wait = milliseconds{0}; }, "As --wait 0: now or not at all")
        ->excludes(wait);
    add_duration(command, "--max-hold", lock_.max_hold,
                 "How long to hold it at most [the gateway's lease.max_hold_ms: 24h]");
    add_duration(command, "--ttl", lock_.ttl,
                 "How long the lease outlives us if nobody renews it any more; else the gateway's default");
    add_duration(command, "--kill-after", lock_.kill_after,
                 "From SIGTERM to SIGKILL where the lease is lost or over [5s]");
    auto* owner =
        command.add_option("--owner", lock_.owner, "A name for the holder, which may hold the same several times over");
    command
        .add_flag(
            "--seal", lock_.seal,
            "At the end raise the fence past the token, so that nothing the command left behind can write with it")
        ->excludes(owner);
}

void commands::add_completion() {
    CLI::App& command = add("completion", "Print a script that completes these commands in a shell",
                            "Examples:\n  source <(fencegate completion bash)\n"
                            "  fencegate completion zsh > ~/.zfunc/_fencegate\n"
                            "  fencegate completion fish > ~/.config/fish/completions/fencegate.fish");
    command.add_option("SHELL", shell_, "Which shell")->required()->check(CLI::IsMember({"bash", "zsh", "fish"}));
}

int commands::take_command(int argc, char** argv) {
    if (argc < 2 || std::string_view(argv[1]) != "lock") return argc;
    char** const end = argv + argc;
    char** const mark = std::find_if(argv, end, [](const char* word) { return std::string_view(word) == "--"; });
    if (mark == end) return argc;
    lock_.command.assign(mark + 1, end);
    return static_cast<int>(mark - argv);
}

std::optional<int> commands::run() {
    for (const CLI::App* command : all_) {
        if (!command->parsed()) continue;
        try {
            return run(command->get_name());
        } catch (const usage_error& e) {
            std::cerr << "fencegate " << command->get_name() << ": " << e.what() << "\n";
            return exit_usage;
        } catch (const unreachable& e) {
            std::cerr << "fencegate " << command->get_name() << ": " << e.what() << "\n";
            return exit_unavailable;
        } catch (const refused& e) {
            std::cerr << "fencegate " << command->get_name() << ": " << e.what() << "\n";
            return exit_failed;
        }
    }
    return std::nullopt;
}

int commands::run(const std::string& name) {
    if (name == "completion") {
        std::cout << completion_script(app_, shell_);
    } else if (name == "lock") {
        return run_locked(gateway_, lock_);
    } else if (name == "status") {
        return show_status(client(gateway_), json_);
    } else if (name == "leases") {
        list_leases(client(gateway_), leases_, json_);
    } else if (follow_) {
        follow_history(client(gateway_), history_, json_);
    } else {
        list_history(client(gateway_), history_, json_);
    }
    if (std::cout.flush()) return exit_ok;
    std::cerr << "fencegate " << name << ": the output can't be written\n";
    return exit_failed;
}

}  // namespace fencegate::cli
