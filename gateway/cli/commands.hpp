#pragma once

#include <gateway/cli/client.hpp>
#include <gateway/cli/listings.hpp>
#include <gateway/cli/lock.hpp>

#include <optional>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace fencegate::cli {

/// The subcommands that call a running gateway, for people and scripts: status, leases, history, lock; and completion.
class commands {
  public:
    /// Adds the subcommands to `app`, which outlives this object.
    explicit commands(CLI::App& app);
    commands(const commands&) = delete;
    commands& operator=(const commands&) = delete;

    /// Keeps the program of `fencegate lock ... -- PROGRAM...` and hides it from the parser, because it has options of
    /// its own.
    ///
    /// Out: the number of arguments to parse.
    int extract_program(int argc, char** argv);

    /// Runs the subcommand that was parsed.
    ///
    /// Out: an exit code; empty when the arguments name none of these subcommands.
    std::optional<int> run();

  private:
    void add_status();
    void add_leases();
    void add_history();
    void add_lock();
    void add_completion();
    CLI::App& add(const std::string& name, const std::string& help, const std::string& footer);
    int run(const std::string& name);

    CLI::App& app_;
    std::vector<CLI::App*> subcommands_;
    gateway_options gateway_;
    bool json_ = false;
    lease_filter leases_;
    history_filter history_;
    bool follow_ = false;
    lock_options lock_;
    std::string shell_;
};

}  // namespace fencegate::cli
