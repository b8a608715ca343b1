#include <lockcore/probe.hpp>

#include <redis/node_info.hpp>

#include <hiredis/hiredis.h>

#include <map>
#include <memory>

namespace lockcore {
namespace {

using connection = std::unique_ptr<redisContext, decltype(&redisFree)>;
using answer = std::unique_ptr<redisReply, decltype(&freeReplyObject)>;

timeval timeval_of(std::chrono::milliseconds ms) {
    return {ms.count() / 1000, (ms.count() % 1000) * 1000};
}

answer ask(redisContext& c, const std::vector<std::string>& words) {
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
        (void)ask(*c, auth);
    }
    redis::node_look look;
    const answer info = ask(*c, {"INFO"});
    if (!info || info->type == REDIS_REPLY_ERROR) {
        report.detail = "does not answer INFO: " + (info ? text(info.get()) : std::string(c->errstr));
        return report;
    }
    look.info = text(info.get());
    for (const char* setting : redis::sync_settings) {
        const answer value = ask(*c, {"CONFIG", "GET", setting});
        if (value && value->type == REDIS_REPLY_ARRAY && value->elements == 2)
            look.persistence += std::string(setting) + ' ' + text(value->element[1]) + ' ';
    }
    const node_facts facts = redis::facts_from(look);
    const auto [first, is_new] = run_ids.emplace(facts.run_id, address.name);
    report.detail = "Redis " + std::string(redis::info_field(look.info, "redis_version")) + ", " + facts.role +
                    ", maxmemory-policy " + facts.maxmemory_policy + ", " +
                    (look.persistence.empty() ? "appendonly unknown" : look.persistence);
    if (report.detail.ends_with(' ')) report.detail.pop_back();
    if (const std::string why = why_no_node(facts); !why.empty()) {
        report.detail += "; " + why;
    } else if (!is_new) {
        report.detail += "; is the same server as " + first->second;
    } else {
        report.ok = true;
        if (!facts.syncs_every_write) report.detail += " (sits out lease.max_ttl_ms after a restart)";
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
