#pragma once

#include <lockcore/secrets.hpp>
#include <proto/core_context.hpp>
#include <proto/core_io.hpp>
#include <proto/lease_record.hpp>

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace lockcore {

/// Merges the leases that several nodes have into those that a node must have before it votes again (docs/protocol.md,
/// FAST READMISSION 5). A merged lease has the stamp 0, so that it excludes others but does not count for its holder
/// until an UPGRADE.
///
/// A token that no grant can have had yet is the sign of a faulty node; such a copy may be of any lease.
///
/// Limits:  bytes_max of names and values, counted once for the copies that different sources have of one lease; as
///          many different leases under one name as leases_max, and shared ones as shared_max. Copies above that are
///          not taken.
/// Threads: not safe.
class lease_merge {
  public:
    static constexpr std::size_t bytes_max = std::size_t{64} << 20U;
    /// While the nodes are read, one name may have several leases in turn.
    static constexpr std::size_t leases_max = 64;
    /// Of each node a name may have 1,024 shared leases (redis/shared.lua).
    static constexpr std::size_t shared_max = 1'024 * nodes_max;

    /// `nodes`: of the cluster. `sources`: how many of them are read. `longest`: the ttl that is written for a key
    /// without a ttl. `highest`: the highest epoch of a token that may have been granted.
    lease_merge(random_source& random, std::size_t nodes, std::size_t sources, milliseconds longest, epoch highest)
        : random_(random),
          quorum_(majority_of(nodes)),
          not_read_(nodes - sources),
          longest_(longest),
          highest_(highest) {}

    /// Adds what a source has under a key. Returns false if a limit is reached.
    bool add(std::size_t source, const lease_copy& copy);
    /// Returns merged leases, at most this many, and forgets them; none: there are no more. Nothing may be added after
    /// that.
    std::vector<lease_copy> take(std::size_t at_most);

  private:
    /// The copies of one lease, merged; or the copies that may be of any lease: blocks, and values that are no lease.
    struct copies {
        std::optional<lease_record> lease;  ///< Empty: any lease.
        bool shared = false;                ///< Of a lease that shares the resource.
        node_set sources;
        milliseconds remaining{};  ///< The longest.
    };
    /// Adds to chosen_ the keys that the node gets for a resource; none if no lease on it can be valid, or their holds
    /// are released. May change `found`.
    void choose(const std::string& resource, std::vector<copies>& found);

    random_source& random_;
    std::size_t quorum_, not_read_;
    milliseconds longest_;
    epoch highest_;
    std::size_t bytes_ = 0;
    std::unordered_map<std::string, std::vector<copies>> leases_;  ///< By resource.
    std::deque<lease_copy> chosen_;                                ///< Not taken yet.
};

/// Copies to one node, which may have forgotten leases, what the voting nodes hold, so that it need not wait until all
/// leases have expired (docs/protocol.md, FAST READMISSION 2–6).
///
/// Threads:  not safe.
/// Lifetime: by shared_ptr; to drop it ends the copying, and `finished` is not called.
/// Limits:   lease_merge::bytes_max; nodes that answer no request for node_dead_after.
class fast_readmission : public std::enable_shared_from_this<fast_readmission> {
  public:
    using ask_function = std::function<void(node_request::any, std::function<void(node_response::any)>)>;
    struct source {
        std::string run_id;
        ask_function ask;
    };
    /// Gets the mark that READMIT requires, or why the leases could not be copied: an empty text if the node was
    /// restarted or admitted, or its data or settings changed.
    using finished_function = std::function<void(result<std::string>)>;

    /// In: `ask_node`: asks the node that forgot, whose live process is `run_id`. `sources`: other voting nodes, of
    ///     which every majority with it includes one. `highest`: the highest epoch of a token that may have been
    ///     granted.
    ///     `own_mark`: the mark that this gateway set before.
    fast_readmission(core_context& ctx, std::string run_id, ask_function ask_node, std::vector<source> sources,
                     epoch highest, std::string own_mark, finished_function finished);
    ~fast_readmission();
    fast_readmission(const fast_readmission&) = delete;
    fast_readmission& operator=(const fast_readmission&) = delete;

    void start();
    /// Returns the mark of the node's life if this gateway set it; empty otherwise.
    const std::string& own_mark() const { return own_mark_; }

    /// The leases of one request: a node reads or writes so many in less than a millisecond.
    static constexpr std::size_t page_size = 100;
    /// The requests to install that may be unanswered. A node that syncs every write then syncs once for several of
    /// them.
    static constexpr std::size_t installs_max = 8;
    /// How much longer this gateway waits if another one set the mark and copies the leases already.
    static constexpr milliseconds other_gateway_timeout{1'000};
    /// How often it looks meanwhile whether the node is admitted.
    static constexpr milliseconds recheck_interval{100};

  private:
    void marked(const node_response::text& answer, const std::string& digits);
    /// Remembers the mark if this gateway has just set it, with these digits.
    void note_if_own(const std::string& mark, const std::string& digits);
    void await_other_gateway(monotonic_time until);
    void read_all();
    void read_page(std::size_t from, std::string base, const std::string& cursor);
    void page_read(std::size_t from, node_response::lease_page page);
    void install_more();
    void finish(result<std::string> outcome);
    void fail(std::string reason);
    /// Calls the function with the answer, unless this was dropped or has finished.
    template <class Response>
    void ask(const ask_function& node, node_request::any request,
             std::function<void(fast_readmission&, Response)> then);
    void set_deadline();
    void wait(milliseconds delay, std::function<void()> then);

    core_context& ctx_;
    std::string run_id_;
    ask_function ask_node_;
    std::vector<source> sources_;
    finished_function finished_;
    std::string own_mark_, mark_;
    lease_merge leases_;
    std::size_t reading_ = 0;     ///< Sources that are not read to the end.
    std::size_t installing_ = 0;  ///< Requests to install that are unanswered.
    timer_list::handle timer_;
};

}  // namespace lockcore
