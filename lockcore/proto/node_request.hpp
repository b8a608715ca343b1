#pragma once

#include <lockcore/lease.hpp>
#include <proto/command.hpp>
#include <proto/node_supervisor.hpp>

#include <cstddef>
#include <string>
#include <variant>
#include <vector>

namespace lockcore {

/// A lease key as one node has it.
struct lease_copy {
    std::string resource;
    milliseconds remaining{};  ///< The ttl on that node; negative: the key has no ttl.
    std::string value;
};

/// What a core asks of a node beside the commands about leases.
namespace node_request {
/// Reads node_facts.
struct identify {};
/// Writes a claim into fg:node if there is none, and reads it.
struct write_claim {
    std::string claim;
};
/// Loads the scripts of these commands, which a server keeps over connections.
struct load_scripts {
    std::vector<command_kind> commands;
};
struct delete_admission {};
struct readmit {
    std::string run_id;
    epoch drawn{};
    std::string claim;  ///< Empty: the node is admitted, and only gets new marks.
    std::string marks;
    bool syncs_every_write = false;
    std::string mark;  ///< The mark for which leases were installed; empty: none were.
};
/// Writes the floor of a change of the storage generation to a node, voting or not.
struct announce {
    std::string run_id;
    storage_floor floor;
    epoch seen{};  ///< Of the node's floor as the gateway saw it last; 0: none.
};
struct ping {};
/// Marks this life of the node for FAST READMISSION, with these digits unless it has a mark.
struct mark {
    std::string digits;
};
/// Reads a page of all leases of a voting node.
struct read_leases {
    std::string run_id;
    std::string base;    ///< That of the first page; empty: this is the first.
    std::string cursor;  ///< "0": from the start.
    std::size_t page_size = 0;
};
/// Writes leases to a node that does not vote.
struct install {
    std::string run_id, mark;
    std::vector<lease_copy> leases;
};
using any = std::variant<identify, write_claim, load_scripts, delete_admission, readmit, announce, ping, mark,
                         read_leases, install>;
}  // namespace node_request

/// What a node answered to a node_request.
namespace node_response {
struct identified {
    node_facts facts;
    bool has_record = false;                    ///< IDENTIFY answered with the fields of fg:node.
    std::string refusal;                        ///< The error with which INFO was refused; empty if it was not.
    std::string record_refusal;                 ///< The error with which IDENTIFY was refused; empty if it was not.
    std::vector<command_kind> missing_scripts;  ///< The commands whose script the server does not have.
    std::string info_begin;  ///< The first bytes of the answer to INFO, for a server that is no Redis.
};
/// The answer to any other request: its text, or the error with which it was refused.
struct text {
    std::string value;
    std::string refusal;  ///< Empty: it was not refused.
};
/// The answer to read_leases.
struct lease_page {
    std::string base;
    std::string cursor;  ///< "0": this is the last page.
    std::vector<lease_copy> leases;
    std::string refusal;  ///< Empty: it was not refused.
};
using any = std::variant<identified, text, lease_page>;
}  // namespace node_response

}  // namespace lockcore
