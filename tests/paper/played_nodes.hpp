#pragma once

#include <lockcore/lease.hpp>
#include <proto/acquire.hpp>
#include <proto/command.hpp>
#include <redis/lease_call.hpp>
#include <support/redis_nodes.hpp>

#include <deque>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

struct redisContext;

namespace fencegate::testing {

/// One real Redis node, asked one command at a time: runs the product's scripts with the product's arguments.
class played_node {
  public:
    explicit played_node(std::uint16_t port) : port_(port) {}

    /// A new connection, bound to the run id of the process that answers there now (docs/protocol.md R9).
    void connect();
    const std::string& run_id() const { return run_id_; }

    /// Any Redis command; the answer as text: a status, a number, a string, '' for nothing, the error's text.
    std::string ask(std::initializer_list<std::string> words);
    std::string ask_words(const std::vector<std::string>& words);

    /// R8 in one go: looks, leaves a claim, and has the node let in with `epoch`. Out: READMIT's answer.
    std::string admit(std::uint64_t epoch);
    /// R8c alone.
    std::string readmit(const std::string& run_id, std::uint64_t epoch, const std::string& claim);
    std::string readmit(const std::string& run_id, std::uint64_t epoch, const std::string& claim,
                        const std::string& marks, const std::string& syncs = "no");
    std::string claim();
    /// As IDENTIFY tells them.
    std::string marks();

    struct item {
        lockcore::redis::lease_call call;
        lockcore::fencing_token token{};
    };
    /// One script call, built for the run id of this connection.
    lockcore::node_reply run(lockcore::command_kind kind, const lockcore::redis::lease_call& call,
                             std::uint64_t token = 0);
    /// The same for many leases at once.
    std::vector<lockcore::node_reply> run_all(lockcore::command_kind kind, const std::vector<item>& items);
    /// The same, built for another run id.
    lockcore::node_reply run_as(const std::string& run_id, lockcore::command_kind kind,
                                const lockcore::redis::lease_call& call, std::uint64_t token = 0);

    /// The lease as it stands there; '' for none.
    std::string lease(const std::string& resource) { return ask({"GET", "fg:lease:" + resource}); }
    std::string token_of(const std::string& resource);
    std::string counter(const std::string& resource);
    void set_counter(const std::string& resource, std::uint64_t value);
    /// The lease's time is over.
    void run_out(const std::string& resource) { ask({"DEL", "fg:lease:" + resource}); }
    /// In ms; -2 for none.
    std::int64_t time_left(const std::string& resource) { return std::stoll(ask({"PTTL", "fg:lease:" + resource})); }
    /// All keys but the record of the admission, with their values: to see that nothing was touched.
    std::string all_keys();

  private:
    std::vector<lockcore::node_reply> run_items(const std::string& run_id, lockcore::command_kind kind,
                                                const std::vector<item>& items);

    std::uint16_t port_;
    std::string run_id_;
    std::shared_ptr<redisContext> connection_;
};

/// A call on some resources under a nonce that is told apart by a letter.
lockcore::redis::lease_call call_of(char who, std::vector<std::string> resources,
                                    lockcore::milliseconds ttl = lockcore::milliseconds{30'000});
lockcore::nonce nonce_of(char who);
/// The same call for another hold of the lease.
lockcore::redis::lease_call held_by(lockcore::redis::lease_call call, std::uint64_t hold);

/// Somebody who acquires: the product's machine, with every message under the test's control. A request reaches a node
/// when the test says so, and so does its answer.
class caller {
  public:
    caller(std::vector<played_node>& nodes, lockcore::redis::lease_call call);

    /// R1 reaches the node; its answer is on its way.
    lockcore::node_reply reach(std::size_t node);
    /// The answer arrives.
    void hear(std::size_t node, const lockcore::node_reply& reply);
    /// Both at once. Out: the counter, or the number of the refusal.
    lockcore::node_reply ask(std::size_t node);
    /// Whether a CONFIRM to this node is on its way.
    bool confirms(std::size_t node) const { return !confirms_.at(node).empty(); }
    /// The oldest CONFIRM on its way to the node reaches it, and its answer the caller.
    lockcore::reply_status confirm(std::size_t node);
    /// So do all that are on their way, until none is.
    void confirm_all();

    const lockcore::acquire& machine() const { return machine_; }
    bool granted() const { return machine_.outcome() == lockcore::acquire::verdict::granted; }
    std::uint64_t token() const { return lockcore::value_of(machine_.token()); }
    const lockcore::redis::lease_call& call() const { return call_; }

  private:
    void note(const lockcore::acquire::step& step);

    std::vector<played_node>& nodes_;
    lockcore::redis::lease_call call_;
    lockcore::acquire machine_;
    std::vector<std::deque<lockcore::fencing_token>> confirms_;
};

}  // namespace fencegate::testing
