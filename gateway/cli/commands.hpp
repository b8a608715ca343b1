#pragma once

#include <gateway/cli/client.hpp>
#include <gateway/cli/interventions.hpp>
#include <gateway/cli/listings.hpp>
#include <gateway/cli/lock.hpp>

#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace CLI {
class App;
}

namespace fencegate::cli {

/// Runs a program: returns the exit code of `run`, or `failed` after it printed what was thrown, or why the output
/// can't be written. The log of `serve` may fail without an effect.
int run_program(std::string_view command, int failed, const std::function<int()>& run);

/// The subcommands that call a running gateway, for people and scripts: status, leases, resources, history, changes,
/// lock and elect; those that others add; and completion.
class commands {
  public:
    /// Adds the subcommands to `app`, which outlives this object.
    explicit commands(CLI::App& app);
    commands(const commands&) = delete;
    commands& operator=(const commands&) = delete;

    /// Adds a subcommand with the options of all that call a gateway. `run` runs it, is given whether --json is there,
    /// and returns the exit code.
    CLI::App& add(const std::string& name, const std::string& help, const std::string& footer,
                  std::function<int(const client&, bool)> run);

    /// Parses the command line, after all subcommands were added.
    ///
    /// Out: an exit code if nothing is to run: after wrong arguments, --help or --version.
    std::optional<int> parse(int argc, char** argv);

    /// Runs the subcommand that was parsed.
    ///
    /// Out: an exit code; empty when the arguments name none of these subcommands.
    std::optional<int> run();

  private:
    void add_status();
    void add_leases();
    void add_resources();
    void add_history();
    void add_changes();
    /// Adds what history and changes have in common. `items`: what they list.
    void add_filters(CLI::App& command, history_filter& filter, const std::string& items);
    void add_lock();
    void add_elect();
    void add_holding_options(CLI::App& command);
    int run_lock(bool elect);
    void add_interventions();
    void add_completion();
    CLI::App& add(const std::string& name, const std::string& help, const std::string& footer);
    int run(const std::string& name);
    /// Keeps the program of `fencegate lock ... -- PROGRAM...`, or elect, and the words to complete, and hides them
    /// from the parser, because they have options of their own.
    ///
    /// Out: the number of arguments to parse.
    int extract_program(int argc, char** argv);
    /// CLI11 reads an argument `[a,b]` for several values as a list of them, but it is the name of one resource: marks
    /// such words before it parses them, and removes the marks afterwards.
    void hide_brackets(int argc, char** argv);
    static void show_bracket(std::string& word);

    CLI::App& app_;
    std::vector<CLI::App*> subcommands_;
    gateway_options gateway_;
    bool json_ = false;
    lease_filter leases_;
    history_filter history_, changes_;
    bool follow_ = false;
    bool csv_ = false;
    std::string resource_prefix_;
    revocation revocation_;
    fence_repair repair_;
    lock_options lock_;
    std::map<std::string, std::function<int(const client&, bool)>> added_;  ///< By name.
    bool has_empty_program_ = false;                                        ///< `--` is the last argument.
    static constexpr char bracket_mark = '\x1f';
    std::deque<std::string> hidden_;  ///< Marked words, to which argv points.
    std::string shell_;
    std::vector<std::string> begun_line_;  ///< The words that a shell completes.
};

}  // namespace fencegate::cli
