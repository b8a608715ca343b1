#include <lockcore/probe.hpp>

#include <redis/node_info.hpp>
#include <redis/script_set.hpp>

#include <hiredis/hiredis.h>

#include <map>
#include <memory>

namespace lockcore {
namespace {

using connection = std::unique_ptr<redisContext, decltype(&redisFree)>;
using reply_ptr = std::unique_ptr<redisReply, decltype(&freeReplyObject)>;

timeval timeval_of(std::chrono::milliseconds ms) {
    return {ms.count() / 1000, (ms.count() % 1000) * 1000};
}

reply_ptr send_command(redisContext& c, const std::vector<std::string>& words) {
    std::vector<const char*> texts;
    std::vector<std::size_t> sizes;
    for (const std::string& w : words) {
        texts.push_back(w.data());
        sizes.push_back(w.size());
    }
    return {static_cast<redisReply*>(redisCommandArgv(&c, static_cast<int>(words.size()), texts.data(), sizes.data())),
            &freeReplyObject};
}

std::string text(const redisReply* r) {
    return r && r->str ? std::string(r->str, static_cast<std::size_t>(r->len)) : std::string{};
}

node_report probe(const node_address& address, std::chrono::milliseconds timeout,
                  std::map<std::string, std::string>& run_ids) {
    node_report report;
    report.name = address.name;
    const connection c(redisConnectWithTimeout(address.host.c_str(), address.port, timeval_of(timeout)), &redisFree);
    if (!c || c->err) {
        report.detail = address.host + ":" + std::to_string(address.port) +
                        " can't be reached: " + (c ? c->errstr : "out of memory");
        return report;
    }
    redisSetTimeout(c.get(), timeval_of(timeout));
    if (!address.password.empty()) {
        std::vector<std::string> auth{"AUTH"};
        if (!address.username.empty()) auth.push_back(address.username);
        auth.push_back(address.password);
        const reply_ptr accepted = send_command(*c, auth);
        if (!accepted || accepted->type == REDIS_REPLY_ERROR) {
            report.detail = accepted ? "refuses the credentials: " + text(accepted.get())
                                     : "does not answer AUTH: " + std::string(c->errstr);
            return report;
        }
    }
    redis::raw_node_facts raw;
    const reply_ptr record = send_command(*c, {"EVAL", redis::identify_script().text, "1", "fg:node"});
    for (std::size_t i = 0; record && record->type == REDIS_REPLY_ARRAY && i < record->elements; ++i)
        raw.record.push_back(text(record->element[i]));
    const reply_ptr info = send_command(*c, {"INFO"});
    if (!info || info->type == REDIS_REPLY_ERROR) {
        report.detail = "does not answer INFO: " + (info ? text(info.get()) : std::string(c->errstr));
        return report;
    }
    raw.info = text(info.get());
    for (const std::string_view setting : redis::sync_settings) {
        const reply_ptr value = send_command(*c, {"CONFIG", "GET", std::string(setting)});
        if (value && value->type == REDIS_REPLY_ARRAY && value->elements == 2)
            raw.persistence += std::string(setting) + ' ' + text(value->element[1]) + ' ';
    }
    const node_facts facts = redis::parse_node_facts(raw);
    const auto [first_node, is_new] = run_ids.emplace(facts.run_id, address.name);
    report.detail = "Redis " + std::string(redis::find_info_field(raw.info, "redis_version")) + ", " + facts.role +
                    ", maxmemory-policy " + facts.maxmemory_policy + ", " +
                    (raw.persistence.empty() ? "appendonly unknown" : raw.persistence);
    if (report.detail.ends_with(' ')) report.detail.pop_back();
    if (const std::string fault = find_misconfiguration(facts); !fault.empty()) {
        report.detail += "; " + fault;
    } else if (!is_new) {
        report.detail += "; is the same server as " + first_node->second;
    } else if (raw.record.size() != redis::record_fields) {
        report.detail +=
            "; does not run the script that reads fg:node: " + (record ? text(record.get()) : std::string(c->errstr));
    } else {
        report.ok = true;
        if (!facts.syncs_every_write) report.detail += " (after a restart it does not vote for lease.max_ttl_ms)";
    }
    return report;
}

}  // namespace

std::vector<node_report> probe_nodes(const config& cfg) {
    std::vector<node_report> out;
    std::map<std::string, std::string> run_ids;
    for (const node_address& node : cfg.nodes)
        out.push_back(probe(node, cfg.node_dead_after, run_ids));
    return out;
}

}  // namespace lockcore
