#pragma once

#include <sim/check/checkers.hpp>
#include <sim/parts/messages.hpp>
#include <sim/redis/redis_server.hpp>

#include <functional>
#include <string>
#include <vector>

namespace sim {

/// Simulates a node: a Redis server, which runs the product's own scripts, in a process that crashes and restarts with
/// all, none or an older state of its data. Reports each stamp that a script wrote to the checkers.
class sim_node {
  public:
    /// older_file: the node syncs every write, starts with other settings, so that it loads an older file, and is given
    /// its settings again by CONFIG SET before it is identified.
    enum class restart : std::uint8_t { keeping, losing, rolled_back, older_file };

    sim_node(context& ctx, checkers& check, std::uint32_t index, bool syncs_every_write, drifting_clock clock);
    sim_node(const sim_node&) = delete;

    void start(run_number run);
    void crash(restart kind);
    void flush();
    /// Runs a command that replaces the data, or a part of them, by older ones.
    void replace_data();
    /// CONFIG SET: a later crash may lose the writes that follow.
    void end_sync();
    /// Returns true if the node lost data and no gateway has inspected it since.
    bool has_unnoticed_loss();
    /// Returns true if the node loaded an older file, or lost data before it was admitted, and was not admitted since.
    bool has_older_data() const { return has_older_data_; }
    /// Returns true if the node lost data and was not admitted since.
    bool has_forgotten() const { return has_forgotten_; }
    void pause_until(sim_time until) { paused_until_ = std::max(paused_until_, until); }
    void resume() { paused_until_ = sim_time{0}; }
    void jump_clock(microseconds span) { jumped_ += span; }

    bool runs() const { return run_ != 0; }
    run_number run() const { return run_; }
    bool syncs_every_write() const { return syncs_every_write_; }
    sim_time paused_until() const { return paused_until_; }
    /// Returns true if the data say that the node is admitted as this process.
    bool is_admitted_as(run_number run);
    /// Loads a script of the product, as a client library does before it sends a request again.
    void load_script(lockcore::command_kind kind);

    reply execute(const request& q);
    redis_server& server() { return server_; }

    /// Returns the nonces of the leases on a resource.
    std::vector<sim_nonce> holders_of(std::uint32_t resource);
    /// Returns true if there is a lease on a resource that was granted to this request.
    bool has_lease_of(const lockcore::acquire_request& granted, std::uint32_t resource);
    /// Returns true if a lease lives longer than `longest` from now on.
    bool outlives(std::uint32_t resource, milliseconds longest);

  private:
    /// The first words of a lease.
    struct lease_head {
        sim_nonce nonce = 0;
        std::uint64_t stamp = 0, token = 0;
        friend bool operator==(const lease_head&, const lease_head&) = default;
    };
    lease_head head_of(std::string_view key);
    /// Calls the function with each key of a lease on a resource.
    void for_each_lease(std::uint32_t resource, const std::function<void(const std::string&)>& f);
    void require_comparison();
    std::string field_of_node(std::string_view name);
    void set_clock();
    void report_stamps();
    void apply_settings();
    void save_copy();
    void restore_copy();

    context& ctx_;
    checkers& check_;
    std::uint32_t index_;
    bool configured_to_sync_, syncs_every_write_;
    bool sets_at_start_ = false;  ///< The next process is given a setting before it is identified.
    bool has_older_data_ = false, has_forgotten_ = false;
    drifting_clock clock_;
    microseconds jumped_{0};
    run_number run_ = 0;
    sim_time paused_until_{0};
    redis_server server_;
    std::vector<redis_data> copies_;                           ///< Earlier states that a restart may restore.
    std::vector<std::pair<std::string, lease_head>> touched_;  ///< By the present script, as they were before.
};

}  // namespace sim
