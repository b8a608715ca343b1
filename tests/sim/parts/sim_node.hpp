#pragma once

#include <sim/check/checkers.hpp>
#include <sim/parts/messages.hpp>

#include <string>
#include <vector>

namespace sim {

/// Simulates a Redis node with a second, plain implementation of the scripts in lockcore/redis/scripts: its data, a
/// wall clock for expiry, and a process that crashes and restarts with all, none or an older state of its data.
///
/// It uses no code of the product; where the two differ, one of them is wrong.
class sim_node {
  public:
    /// older_file: the node syncs every write, starts with other settings, so that it loads an older file, and is given
    /// its settings again by CONFIG SET before it is identified.
    enum class restart : std::uint8_t { keeping, losing, rolled_back, older_file };

    sim_node(context& ctx, checkers& check, std::uint32_t index, bool syncs_every_write, drifting_clock clock);

    void start(run_number run);
    void crash(restart kind);
    void flush();
    /// Runs a counted command that replaces the data, or a part of them, by older ones.
    void replace_data();
    bool replaced_since(sim_time when) const { return replaced_at_ >= when; }
    /// Counts a command that can lose data, without losing any.
    void count_data_losing_command() { ++marks_.lost; }
    /// CONFIG SET: a later crash may lose the writes that follow.
    void end_sync();
    /// Returns true if the node lost data and no gateway has inspected it since.
    bool has_unnoticed_loss() const { return data_.run == run_ && data_.marks.lost != marks_.lost; }
    /// Returns true if the node loaded an older file and was not admitted since.
    bool has_older_file() const { return has_older_file_; }
    void pause_until(sim_time until) { paused_until_ = std::max(paused_until_, until); }
    void resume() { paused_until_ = sim_time{0}; }
    void jump_clock(microseconds span) { jumped_ += span; }

    bool runs() const { return run_ != 0; }
    run_number run() const { return run_; }
    bool syncs_every_write() const { return syncs_every_write_; }
    sim_time paused_until() const { return paused_until_; }

    reply execute(const request& q);
    /// Removes and returns the messages about leases that ended since the last call.
    std::vector<release_message> take_release_messages() { return std::exchange(release_messages_, {}); }

    /// Returns the nonce of the lease on a resource; 0: none.
    sim_nonce holder_of(std::uint32_t resource) const;
    /// Returns true if the lease lives longer than `longest` from now on.
    bool outlives(std::uint32_t resource, milliseconds longest) const;
    /// Returns the lease as Redis would store it; empty: none.
    std::string lease_text(std::uint32_t resource) const;
    /// Returns how long the lease lives.
    milliseconds time_left(std::uint32_t resource) const;
    std::uint64_t counter(std::uint32_t resource) const { return data_.counters[ctx_.config.bucket_of[resource]]; }

    static constexpr std::size_t keys_max = 8, marks_max = 16, holds_max = 64, tombstones_max = 64;

  private:
    struct lease_row {
        sim_nonce nonce = 0;
        std::uint64_t token = 0;
        std::uint32_t renewals = 0;
        std::vector<hold_number> ids, tombstones;  ///< Live holds, and tombstones.
        hold_number closed_by = 0;                 ///< 0: not closed.
        std::uint64_t closed_mark = 0;
        milliseconds last_ttl{0}, held{0};  ///< The ttl last set, and for how long it was held by then.
        identity holder;
        resource_set resources = 0;
        std::vector<std::pair<idempotency, hold_number>> keys;
        std::vector<wake_mark> marks;
        milliseconds expires{0};  ///< By the node's wall clock.
    };
    /// The data of a Redis server.
    struct stored {
        run_number run = 0;  ///< fg:node
        std::uint64_t base = 0;
        std::uint32_t claim = 0;
        node_marks marks;
        bool kept_unsynced = false;
        std::array<lease_row, sim_resources_max> leases{};        ///< fg:lease:…
        std::array<std::uint64_t, sim_resources_max> counters{};  ///< fg:token:…
    };

    lockcore::node_reply acquire(const request& q);
    lockcore::node_reply refuse(const request& q, milliseconds left, std::uint64_t token);
    lockcore::node_reply release_previous_hold(const request& q, const std::vector<hold_number>& left);
    lockcore::node_reply close(const request& q);
    static void release_id(lease_row& row, hold_number id);
    static std::string holds_text(const lease_row& row);
    lockcore::node_reply confirm(const request& q);
    lockcore::node_reply renew(const request& q);
    lockcore::node_reply inspect(const request& q) const;
    lockcore::node_reply look(const request& q) const;
    lockcore::node_reply top_up(const request& q);
    lockcore::node_reply release(const request& q);
    reply identify(const request& q);
    reply readmit(const request& q);
    reply delete_admission();

    milliseconds wall() const;
    lease_row* live(std::uint32_t resource);
    const lease_row* live(std::uint32_t resource) const;
    bool is_callers(const lease_row& row, const request& q) const;
    std::uint64_t& counter_of(std::uint32_t resource) { return data_.counters[ctx_.config.bucket_of[resource]]; }
    std::uint64_t eff(resource_set set);
    void write(const request& q, std::uint32_t resource, std::uint64_t token, std::vector<wake_mark> marks);
    void save_copy();
    void restore_copy();

    context& ctx_;
    checkers& check_;
    std::uint32_t index_;
    bool configured_to_sync_, syncs_every_write_;
    node_marks marks_;                 ///< Of this process.
    std::uint32_t sets_at_start_ = 0;  ///< Calls of CONFIG SET that the next process counts before it is identified.
    bool has_older_file_ = false;
    sim_time replaced_at_{-1};
    drifting_clock clock_;
    microseconds jumped_{0};
    run_number run_ = 0;
    sim_time paused_until_{0};
    stored data_;
    std::vector<release_message> release_messages_;
    std::vector<stored> copies_;  ///< Earlier states that a restart may restore.
};

}  // namespace sim
