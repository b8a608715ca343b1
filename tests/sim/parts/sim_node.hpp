#pragma once

#include <sim/check/checkers.hpp>
#include <sim/parts/messages.hpp>

#include <string>
#include <vector>

namespace sim {

/// A Redis node as the scripts in lockcore/redis/scripts see it, written a second time and as plainly as possible:
/// data, a wall clock for expiry, a process that dies and comes back with all, none or an older state of its data.
///
/// Nothing here is taken from the product; where both disagree one of them is wrong.
class sim_node {
  public:
    enum class restart : std::uint8_t { keeping, losing, rolled_back };

    sim_node(context& ctx, checkers& check, std::uint32_t index, bool syncs_every_write, drifting_clock clock);

    void start(run_number run);
    void crash(restart how);
    void flush();
    /// A command replaces the data, or a part of them, by older ones; it is counted.
    void replace_data();
    bool replaced_since(sim_time when) const { return replaced_at_ >= when; }
    /// A command that could lose data runs, and loses none.
    void count_losing_command() { ++marks_.lost; }
    /// CONFIG SET: from now on a crash loses what is written.
    void end_sync();
    /// It has forgotten, and nobody has looked since.
    bool forgot_unseen() const { return data_.run == run_ && data_.marks.lost != marks_.lost; }
    void pause_until(sim_time until) { paused_until_ = std::max(paused_until_, until); }
    void resume() { paused_until_ = sim_time{0}; }
    void jump_clock(microseconds by) { jumped_ += by; }

    bool runs() const { return run_ != 0; }
    run_number run() const { return run_; }
    bool syncs_every_write() const { return syncs_every_write_; }
    sim_time paused_until() const { return paused_until_; }

    reply execute(const request& q);
    /// Who is to be told of leases that ended since this was asked last.
    std::vector<wake> take_wakes() { return std::exchange(wakes_, {}); }

    /// The lease on a resource, whose ever it is; 0 = none.
    sim_nonce holder_of(std::uint32_t resource) const;
    /// True if a lease would stay longer than `longest` from here on.
    bool keeps_beyond(std::uint32_t resource, milliseconds longest) const;
    /// The lease as it would stand in Redis; empty: none.
    std::string lease_text(std::uint32_t resource) const;
    /// How long it stays.
    milliseconds time_left(std::uint32_t resource) const;
    std::uint64_t counter(std::uint32_t resource) const { return data_.counters[ctx_.set.bucket_of[resource]]; }

    static constexpr std::size_t keys_max = 8, marks_max = 16, holds_max = 64, tombstones_max = 64;

  private:
    struct lease_row {
        sim_nonce nonce = 0;
        std::uint64_t token = 0;
        std::uint32_t renewals = 0;
        std::vector<hold_number> ids, dead;  ///< Live holds, and tombstones.
        hold_number closed_by = 0;           ///< 0: open.
        std::uint64_t closed_mark = 0;
        milliseconds given{0}, held{0};  ///< The ttl as last given, and how long it was held until then.
        identity by;
        resource_set resources = 0;
        std::vector<std::pair<idempotency, hold_number>> keys;
        std::vector<wake_mark> marks;
        milliseconds expires{0};  ///< By the node's wall clock.
    };
    /// Everything a Redis server stores.
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
    lockcore::node_reply take_a_hold_off(const request& q, const std::vector<hold_number>& left);
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
    reply forget();

    milliseconds wall() const;
    lease_row* live(std::uint32_t resource);
    const lease_row* live(std::uint32_t resource) const;
    bool is_callers(const lease_row& row, const request& q) const;
    std::uint64_t& counter_of(std::uint32_t resource) { return data_.counters[ctx_.set.bucket_of[resource]]; }
    std::uint64_t eff(resource_set set);
    void write(const request& q, std::uint32_t resource, std::uint64_t token, std::vector<wake_mark> marks);
    void keep_a_copy();

    context& ctx_;
    checkers& check_;
    std::uint32_t index_;
    bool configured_to_sync_, syncs_every_write_;
    node_marks marks_;  ///< Of this process.
    sim_time replaced_at_{-1};
    drifting_clock clock_;
    microseconds jumped_{0};
    run_number run_ = 0;
    sim_time paused_until_{0};
    stored data_;
    std::vector<wake> wakes_;
    std::vector<stored> copies_;  ///< States of the past that a restart may bring back.
};

}  // namespace sim
