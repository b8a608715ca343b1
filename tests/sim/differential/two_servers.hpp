#pragma once

#include <proto/command.hpp>
#include <sim/differential/real_node.hpp>
#include <sim/redis/redis_server.hpp>

#include <string>
#include <vector>

namespace sim {

/// A real Redis server and a simulated one, which get the same commands. Their answers and data are compared; times may
/// differ by clock_tolerance. Uses the assertions of googletest.
class two_servers {
  public:
    /// The real server on this port is emptied.
    explicit two_servers(std::uint16_t port);

    /// Sends one command to both servers and compares the answers.
    void ask(const std::string& resp);
    /// Sends a batch of commands about leases. Out: the real answers; the first word of an error.
    std::vector<std::string> run_batch(lockcore::command_kind kind, const std::vector<lockcore::batch_item>& items,
                                       const std::string& run, bool with_source);
    /// Sends READ and compares the leases of the page, in any order.
    void read_page(const std::string& resp);
    /// Reads what the product reads of a node, and compares that.
    void identify();
    void compare_data();

    // What the simulated server has.
    const std::string& run_id() const { return simulated_.run_id; }
    std::string node_field(std::string_view name);
    std::string lease(const lockcore::resource_name& name);
    /// Returns one of the leases that share a resource; empty: there is none.
    std::string shared_lease(const lockcore::resource_name& name, std::uint32_t number);
    /// Returns the stamp of a lease, as its second word begins with it, or the base of the node if that is higher.
    std::string version(const lockcore::resource_name& name);
    std::uint64_t counter(const lockcore::resource_name& name);
    std::string marks();

  private:
    redis_reply ask_simulated(std::string_view resp);
    redis_reply ask_real(const std::string& resp);
    void compare(const redis_reply& here, const redis_reply& there) const;
    void compare_answer(lockcore::command_kind kind, bool several, std::string here, std::string there) const;
    void compare_messages();

    redis_server simulated_;
    redis_connection real_, subscriber_;
    std::vector<std::string> messages_;
    std::string last_;  ///< The last command, for the report.
};

}  // namespace sim
