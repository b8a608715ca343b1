#include <gateway/cli/commands.hpp>

#include <gateway/cli/arguments.hpp>
#include <gateway/cli/completion.hpp>
#include <gateway/cli/duration_option.hpp>
#include <gateway/cli/listings.hpp>
#include <gateway/cli/output.hpp>
#include <gateway/config/nearest_name.hpp>
#include <gateway/domain/exit_code.hpp>
#include <gateway/domain/history_events.hpp>
#include <gateway/runtime/text.hpp>

#include <CLI/CLI.hpp>

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <span>
#include <string_view>
#include <vector>

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

/// Makes an empty value of an option or argument an error: it comes from a variable that is not set, and many options
/// would take it as if they were not given.
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

/// Opens /dev/null for each of standard input, output and error that is closed: the next pipe or socket would get its
/// number, and with it what is printed. Writing to it fails, as to a closed descriptor.
void open_standard_descriptors() {
    for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
        // open() takes the lowest number that is free.
        if (fcntl(descriptor, F_GETFD) < 0 && open("/dev/null", O_RDONLY) != descriptor) _exit(exit_failed);
    }
}

}  // namespace

int run_program(std::string_view command, int failed, const std::function<int()>& run) {
    open_standard_descriptors();
    try {
        const int code = run();
        if (command == "serve" || std::cout.flush()) return code;
        runtime::print_error(command, "the output can't be written");
        return code == exit_ok ? failed : code;
    } catch (const std::exception& e) {
        std::cerr << "fencegate: " << runtime::make_lines_printable(e.what()) << "\n";
        return failed;
    }
}

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
        ->check(CLI::IsMember(std::vector<std::string>(history_events.begin(), history_events.end())));
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

void commands::add_interventions() {
    CLI::App& revoke = add("revoke", "Revoke leases: their holders can write no more",
                           std::string(exit_codes) +
                               "Needs the scope `operate` for all resources of the lease, which is revoked on all of "
                               "them.\nThe fence is raised above its token first.\nOf a shared resource "
                               "all leases are revoked, with --token those with that token.\nExample:\n"
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

std::optional<int> commands::parse(int argc, char** argv) {
    refuse_empty_values(app_);
    const auto is_named = [&](const CLI::App* command) { return command->get_name() == argv[1]; };
    if (argc > 1 && *argv[1] != '-' && app_.get_subcommands(is_named).empty()) {
        std::vector<std::string> names;
        for (const CLI::App* command : app_.get_subcommands({}))
            names.push_back(command->get_name());
        const auto meant = nearest_name(argv[1], names);
        std::cerr << "fencegate: there is no command " << argv[1] << (meant ? "; did you mean " + *meant + "?" : "")
                  << "\nRun with --help for more information.\n";
        return exit_usage;
    }
    try {
        app_.parse(extract_program(argc, argv), argv);
    } catch (const CLI::ParseError& e) {
        return app_.exit(e) == 0 ? exit_ok : exit_usage;
    }
    return std::nullopt;
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
        return run_lock(name == "elect");
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

}  // namespace fencegate::cli
