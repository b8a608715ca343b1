#pragma once

#include <lockcore/lease.hpp>
#include <proto/acquire_machine.hpp>
#include <proto/command.hpp>
#include <support/redis_nodes.hpp>

#include <deque>
#include <memory>
#include <string>
#include <vector>

struct redisContext;

namespace fencegate::testing {

/// A client of one real Redis node that runs one command at a time: any Redis command, or a script of the product with
/// the product's arguments.
class node_client {
  public:
    explicit node_client(std::uint16_t port) : port_(port) {}

    /// Opens a new connection and reads the run id of the process that answers (docs/protocol.md R9).
    void connect();
    const std::string& run_id() const { return run_id_; }

    /// Runs any Redis command.
    /// Out: the answer as text: a status, a number, a string, the text of an error, or '' for nil.
    std::string command(const std::vector<std::string>& words);
    /// Runs a command and returns the elements of its reply; of any other reply than an array, its text alone.
    std::vector<std::string> command_list(const std::vector<std::string>& words);

    /// Waits for the next message of the channels to which this connection has subscribed.
    std::string next_message();

    /// Runs R8 as a whole: writes a claim, reads the marks and readmits the node with `epoch`.
    /// Out: the answer of READMIT.
    std::string admit(std::uint64_t epoch);
    /// Runs step (c) of R8 alone.
    std::string readmit(const std::string& run_id, std::uint64_t epoch, const std::string& claim);
    std::string readmit(const std::string& run_id, std::uint64_t epoch, const std::string& claim,
                        const std::string& marks, const std::string& syncs = "no");
    std::string claim();
    /// Returns the marks as IDENTIFY reports them.
    std::string marks();

    /// Runs MARK, READ of one page, INSTALL and READMIT of FAST READMISSION. The arguments are those of the scripts.
    std::string mark(const std::string& digits);
    /// `run_id`: empty: that of the live process.
    std::vector<std::string> read_leases(const std::string& base, const std::string& cursor, std::size_t page,
                                         const std::string& run_id = {});
    struct installed_lease {
        std::string resource, value;
        std::uint64_t remaining_ms = 0;
    };
    std::string install(const std::string& run_id, const std::string& mark, const std::vector<installed_lease>& page);
    std::string readmit_marked(std::uint64_t epoch, const std::string& mark);

    /// Runs ANNOUNCE as a gateway that has seen the floor which the node has now.
    std::string announce(std::uint64_t epoch, const std::string& change_id);
    /// Runs it with another run id, or as a gateway that has seen another floor.
    std::string announce_as(const std::string& run_id, std::uint64_t epoch, const std::string& change_id,
                            std::uint64_t seen);

    struct item {
        lockcore::lease_call call;
        lockcore::fencing_token token{};
    };
    /// Runs a script for one lease with the run id of this connection.
    lockcore::node_reply run(lockcore::command_kind kind, const lockcore::lease_call& call, std::uint64_t token = 0);
    /// Runs a script for several leases in one call.
    std::vector<lockcore::node_reply> run_all(lockcore::command_kind kind, const std::vector<item>& items);
    /// Runs a script for one lease with another run id.
    lockcore::node_reply run_as(const std::string& run_id, lockcore::command_kind kind,
                                const lockcore::lease_call& call, std::uint64_t token = 0);

    /// Returns the stored lease; '' if there is none.
    std::string lease(const std::string& resource) { return command({"GET", "fg:lease:" + resource}); }
    std::string token_of(const std::string& resource);
    /// Returns the second word of the stored lease, `stamp` or `stamp:token`.
    std::string stamp_of(const std::string& resource);
    std::string counter(const std::string& resource);
    void set_counter(const std::string& resource, std::uint64_t value);
    /// Deletes the lease, as its expiry does.
    void expire_lease(const std::string& resource) { command({"DEL", "fg:lease:" + resource}); }
    /// Returns the remaining time in ms; -2 if there is no lease.
    std::int64_t time_left(const std::string& resource) {
        return std::stoll(command({"PTTL", "fg:lease:" + resource}));
    }
    /// Returns all leases and counters with their values, to compare them before and after a command.
    std::string all_keys();

  private:
    std::vector<lockcore::node_reply> run_items(const std::string& run_id, lockcore::command_kind kind,
                                                const std::vector<item>& items);

    std::uint16_t port_;
    std::string run_id_;
    std::shared_ptr<redisContext> connection_;
};

/// Returns a call for these resources; `letter` selects its nonce.
lockcore::lease_call call_of(char letter, std::vector<std::string> resources,
                             lockcore::milliseconds ttl = lockcore::milliseconds{30'000});
lockcore::nonce nonce_of(char letter);
/// Returns a call of a named owner, who gets a lease again; `wake_mark` is that of the gateway that keeps the lease.
lockcore::lease_call call_of_owner(char letter, std::vector<std::string> resources,
                                   const std::string& owner = "worker-7", const std::string& wake_mark = {});
/// Returns the same call for another hold of the lease.
lockcore::lease_call with_hold(lockcore::lease_call call, std::uint64_t hold);
/// Returns the number of holds that are live by a reply.
std::size_t count_holds(const lockcore::node_reply& reply);

/// Runs the product's acquire_machine; the test delivers each request and each reply.
class stepwise_attempt {
  public:
    stepwise_attempt(std::vector<node_client>& nodes, lockcore::lease_call call);

    /// Delivers ACQUIRE to the node. Out: its reply, which is not delivered yet.
    lockcore::node_reply deliver_acquire(std::size_t node);
    /// Delivers a reply to the machine.
    void deliver_reply(std::size_t node, const lockcore::node_reply& reply);
    /// Delivers ACQUIRE to the node and the reply to the machine. Out: the reply.
    lockcore::node_reply acquire_on(std::size_t node);
    /// Returns true if a CONFIRM to this node is not delivered yet.
    bool has_pending_confirm(std::size_t node) const { return !confirms_.at(node).empty(); }
    /// Delivers the oldest pending CONFIRM to the node and the reply to the machine.
    lockcore::reply_status deliver_confirm(std::size_t node);
    /// Delivers pending CONFIRMs until there are none.
    void deliver_all_confirms();

    const lockcore::acquire_machine& machine() const { return machine_; }
    bool is_granted() const { return machine_.outcome() == lockcore::acquire_machine::verdict::granted; }
    std::uint64_t token() const { return lockcore::value_of(machine_.token()); }
    const lockcore::lease_call& call() const { return call_; }

  private:
    void queue_confirms(const lockcore::acquire_machine::step& step);

    std::vector<node_client>& nodes_;
    lockcore::lease_call call_;
    lockcore::acquire_machine machine_;
    std::vector<std::deque<lockcore::fencing_token>> confirms_;
};

}  // namespace fencegate::testing
