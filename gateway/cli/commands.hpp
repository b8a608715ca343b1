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

/// The subcommands that speak to a running gateway, for people and scripts: status, leases, history, lock; and
/// completion.
class commands {
  public:
    /// Adds them to `app`, which outlives this.
    explicit commands(CLI::App& app);
    commands(const commands&) = delete;
    commands& operator=(const commands&) = delete;

    /// Takes the program of `fencegate lock ... -- PROGRAM...` off the end of the arguments, for it has options of its
    /// own.
    ///
    /// Out: how many arguments are left to parse.
    int take_command(int argc, char** argv);

    /// After parsing, runs what was asked for. Out: an exit code; empty where none of these was asked for.
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
    std::vector<CLI::App*> all_;
    gateway_options gateway_;
    bool json_ = false;
    lease_filter leases_;
    history_filter history_;
    bool follow_ = false;
    lock_options lock_;
    std::string shell_;
};

}  // namespace fencegate::cli
