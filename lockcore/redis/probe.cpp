#include <lockcore/probe.hpp>

#include <redis/connection.hpp>
#include <redis/node_requests.hpp>
#include <redis/resp.hpp>
#include <redis/script_set.hpp>

#include <map>
#include <memory>
#include <optional>

namespace lockcore {
namespace {

/// Sends commands to a node, one after the other, and waits for each reply.
class node_client {
  public:
    node_client(const node_address& address, std::chrono::milliseconds timeout) : timeout_(timeout) {
        boost::system::error_code error;
        boost::asio::ip::make_address(address.host, error);
        is_name_ = error.failed();
        redis::connection::event_handlers handlers;
        handlers.connected = [this] { done_ = true; };
        handlers.lost = [this](const redis::connection::loss& what) {
            error_ = what.reason;
            was_refused_ = what.refused;
        };
        connection_ = std::make_shared<redis::connection>(io_, address, std::move(handlers));
    }
    ~node_client() {
        connection_->close();
        io_.restart();
        io_.poll();  // what the closed connection has still to call
    }
    node_client(const node_client&) = delete;
    node_client& operator=(const node_client&) = delete;

    /// Tries as a gateway does: an attempt goes on with the lookup of the one before, and with the addresses that it
    /// has not tried.
    ///
    /// Out: false if it failed; see error().
    bool connect() {
        for (int attempt = 1;; ++attempt) {
            done_ = false;
            connection_->open();
            if (wait() || error_ != too_late || !is_name_ || attempt == attempts_max) return done_;
            connection_->drop(error_);
            error_.clear();
        }
    }
    /// Out: the reply, also if it is an error; empty if none came; see error().
    std::optional<redis::reply> ask(std::string_view command) {
        std::optional<redis::reply> answer;
        done_ = false;
        const bool sent = connection_->send(command, [this, &answer](const redis::reply* r) {
            if (r) answer = *r;
            done_ = true;
        });
        if (!sent || !wait()) connection_->close();
        if (!answer && error_.empty()) {
            io_.restart();
            io_.poll();  // the reason of a lost connection
            if (error_.empty()) error_ = "the connection was closed";
        }
        return answer;
    }
    const std::string& error() const { return error_; }
    /// Returns whether connect() failed because of the credentials.
    bool was_refused() const { return was_refused_; }

  private:
    bool wait() {
        const auto deadline = std::chrono::steady_clock::now() + timeout_;
        io_.restart();
        while (!done_ && error_.empty() && io_.run_one_until(deadline) != 0) {
        }
        if (!done_ && error_.empty()) error_ = too_late;
        return done_;
    }

    static constexpr const char* too_late = "no answer in time";
    static constexpr int attempts_max = 3;

    const std::chrono::milliseconds timeout_;
    bool is_name_ = false, was_refused_ = false;
    boost::asio::io_context io_{1};
    std::shared_ptr<redis::connection> connection_;
    bool done_ = false;
    std::string error_;
};

std::string command_of(const std::vector<std::string>& words) {
    redis::resp_command out;
    for (const std::string& w : words)
        out.arg(w);
    return out.finish();
}

/// Returns how long a node that may have forgotten leases does not vote (docs/protocol.md, FAST READMISSION).
std::string describe_quarantine(const config& cfg) {
    const std::string longest = "lease.max_ttl_ms (" + std::to_string(cfg.max_ttl.count()) + ")";
    const std::size_t others = cfg.nodes.size() - 1, needed = cfg.nodes.size() - majority_of(cfg.nodes.size()) + 1;
    if (needed > others) return " (after a restart it is quarantined for " + longest + ", and no lease is granted)";
    return " (after a restart it is quarantined: usually for about lease.answer_bound_ms if " + std::to_string(needed) +
           " of the other " + std::to_string(others) + " nodes vote meanwhile, else for up to " + longest + ")";
}

node_report probe(const node_address& address, const config& cfg, std::map<std::string, std::string>& run_ids) {
    node_report report;
    report.name = address.name;
    node_client node(address, cfg.node_dead_after);
    if (!node.connect()) {
        if (node.was_refused()) {
            report.detail = node.error();
            return report;
        }
        report.detail = address.host + ":" + std::to_string(address.port) + " can't be reached: " + node.error();
        if (address.tls) report.detail += "; with redis.tls the port has to be the node's tls-port";
        return report;
    }
    redis::raw_node_facts raw;
    const auto record = node.ask(command_of({"EVAL", redis::identify_script().text, "1", "fg:node"}));
    if (record) {
        for (const redis::reply& field : record->elements)
            raw.record.push_back(field.text);
    }
    const auto info = node.ask(command_of({"INFO"}));
    if (!info || info->is_error()) {
        report.detail = "does not answer INFO: " + (info ? info->text : node.error());
        return report;
    }
    raw.info = info->text;
    for (const std::string_view setting : redis::sync_settings) {
        const auto value = node.ask(command_of({"CONFIG", "GET", std::string(setting)}));
        if (value && value->elements.size() == 2)
            raw.persistence += std::string(setting) + ' ' + value->elements[1].text + ' ';
    }
    const auto replay = node.ask(command_of({redis::replay_question.begin(), redis::replay_question.end()}));
    raw.replays_transactions = replay && replay->text == "OK";
    const node_facts facts = redis::parse_node_facts(raw);
    const auto [first_node, is_new] = run_ids.emplace(facts.run_id, address.name);
    report.detail = "Redis " + std::string(redis::find_info_field(raw.info, "redis_version")) + ", " + facts.role +
                    ", maxmemory-policy " + facts.maxmemory_policy + ", " +
                    (raw.persistence.empty() ? "appendonly unknown" : raw.persistence);
    if (report.detail.ends_with(' ')) report.detail.pop_back();
    if (const std::string other = find_other_cell(facts.claim, cfg.cell); !other.empty()) {
        report.detail += "; " + other;
    } else if (const std::string fault = find_misconfiguration(facts); !fault.empty()) {
        report.detail += "; " + fault;
    } else if (!is_new) {
        report.detail += "; is the same server as " + first_node->second;
    } else if (raw.record.size() != redis::record_fields) {
        report.detail += "; does not run the script that reads fg:node: " + (record ? record->text : node.error());
    } else {
        report.ok = true;
        if (!raw.replays_transactions)
            report.detail +=
                "; WARNING: its user default may not write, or this is not known (ACL DRYRUN), so that a restart "
                "may lose leases: see config/redis-node.conf";
        if (!facts.syncs_every_write) report.detail += describe_quarantine(cfg);
    }
    return report;
}

}  // namespace

std::vector<node_report> probe_nodes(const config& cfg) {
    std::vector<node_report> out;
    std::map<std::string, std::string> run_ids;
    for (const node_address& node : cfg.nodes)
        out.push_back(probe(node, cfg, run_ids));
    return out;
}

}  // namespace lockcore
