#pragma once

#include <lockcore/lease.hpp>
#include <sim/check/checkers.hpp>
#include <sim/parts/messages.hpp>

#include <lockcore/nodes.hpp>

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace sim {

/// A statement of a client at the shop's row of a resource: a fenced read, or a write.
struct shop_statement {
    std::uint32_t resource = 0;
    std::uint64_t token = 0;
    bool writes = false;
    std::uint64_t units = 0;     ///< In: the value to write. Out: the value read.
    std::uint64_t write_id = 0;  ///< 0: the history does not record the write.
};

/// Simulates PostgreSQL: a primary and, after promotions and restores,
/// the servers that replace it, each of which begins from an earlier state of an older one.
/// An older one may still answer those who reach it.
///
/// Has what lockcore and the gateway use of it, imitated function by function: the register of epochs and the change of
/// the storage generation (sql/schema/025, 060 and 065), and the guard with one row per resource. Each call is one
/// transaction that takes no time. tests/sql holds the SQL to what is imitated here.
class database {
  public:
    using server = std::uint32_t;
    enum class replacement : std::uint8_t {
        promotion,  ///< The next timeline.
        dump,       ///< Another system identifier, the same timeline.
        put_back,   ///< The same pair, and the operator calls fence_all.
        count_,
    };
    static constexpr std::uint64_t units_at_start = 1'000'000;

    database(context& ctx, checkers& check);

    // --- servers
    server newest() const { return static_cast<server>(servers_.size() - 1); }
    bool answers(server s) const { return servers_[s].answers; }
    void stop(server s) { servers_[s].answers = false; }
    /// Starts another server with an earlier state of one before. Out: false if there is none yet.
    bool replace(replacement kind);
    /// Returns false for a loaded dump that no gateway has compared: the guard sees only the timeline, so nothing else
    /// may connect (docs/guard.md, Not promised).
    bool may_write_directly(server s) const { return !servers_[s].is_dump || servers_[s].begun; }

    // --- the register; empty: FG503
    std::optional<lockcore::drawn_epoch> draw_epoch(server s, const lockcore::epoch_request& r);
    lockcore::node_record find_node(server s, const std::string& name) const;
    void note_unsynced(server s, const std::string& name);

    // --- the storage generation
    struct generation {
        bool current = false;
        lockcore::epoch floor{};
    };
    generation state_of(server s) const;
    /// Out: empty if the generation is current, or the server was replaced and must not begin a change any more.
    std::optional<lockcore::storage_floor> begin_generation_change(server s, lockcore::epoch seen);
    bool finish_generation_change(server s, const std::string& change_id);
    std::vector<std::uint64_t> find_lost_writes(server s, const std::vector<std::uint64_t>& write_ids) const;

    // --- the guard and the shop
    /// Out: whether the guard let the statement in.
    bool execute(server s, shop_statement& statement);

  private:
    struct pair {
        std::uint32_t system = 1, timeline = 1;
        friend bool operator==(const pair&, const pair&) = default;
    };
    struct change {
        std::uint64_t id = 0, epoch = 0;  ///< 0: none.
        pair target;
    };
    struct data {
        std::uint64_t epoch = 0;
        std::map<std::string, lockcore::node_record> nodes;
        std::optional<pair> stored = pair{};
        std::uint64_t floor = 0;  ///< As an epoch.
        change pending;
        std::array<std::uint64_t, sim_resources_max> units{}, sold{}, fence{};
        std::set<std::uint64_t> writes;
    };
    struct primary {
        pair live;
        data now;
        bool answers = true, begun = false, is_dump = false;
        std::vector<data> earlier;  ///< States from which a server that replaces this one may begin.
    };
    /// Returns whether a newer server has begun a change: what this one draws or begins then is not promised
    /// (docs/protocol.md, "Not promised").
    bool is_replaced(server s) const;
    /// The comparison of fencing.storage_floor.
    bool lets_in(server s) const;
    void fence_all(server s);
    void committed(server s);

    context& ctx_;
    checkers& check_;
    std::vector<primary> servers_;
    std::uint64_t changes_ = 0;
};

}  // namespace sim
