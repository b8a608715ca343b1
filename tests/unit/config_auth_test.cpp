#include <gateway/config/auth_reader.hpp>

#include <gtest/gtest.h>

namespace fencegate {
namespace {

using faults_of_paths = std::vector<std::string>;

const std::string hash(64, 'b');

struct outcome {
    auth_config read;
    faults_of_paths faults;
};

/// Reads the section `auth` with relative files in the folder of this process' temporary files.
outcome read_auth(const std::string& yaml) {
    outcome out;
    config_reader::fault_list faults;
    config_reader::auth_section(out.read, ::testing::TempDir())(YAML::Load(yaml), "auth", faults);
    out.faults = faults.all();
    return out;
}

/// Reads one API key with further members.
outcome read_key(const std::string& members) {
    return read_auth("{api_keys: [{principal: p, key_sha256: " + hash + ", " + members + "}]}");
}

std::string numbered(std::size_t count, const std::string& before, const std::string& after) {
    std::string out = "[";
    for (std::size_t i = 0; i < count; ++i)
        out += before + std::to_string(i) + after + ", ";
    return out + "]";
}

TEST(config_auth, key_with_all_rights_members) {
    const auto got = read_key(R"(scopes: [history],
        prefixes: [{resource_prefix: orders/, scopes: [leases, writes]}, {resource_prefix: orders/closed/, scopes: []}],
        exposed: [orders, place_order], database_role: shop_orders)");
    ASSERT_EQ(got.faults, faults_of_paths{});
    const rights_config& r = got.read.api_keys.at(0).rights;
    EXPECT_EQ(r.scopes, std::set{scope::history});
    ASSERT_EQ(r.prefixes.size(), 2U);
    EXPECT_EQ(r.prefixes[0].resource_prefix, "orders/");
    EXPECT_EQ(r.prefixes[0].scopes, (std::set{scope::leases, scope::writes}));
    EXPECT_TRUE(r.prefixes[1].scopes.empty());
    ASSERT_TRUE(r.exposed);
    EXPECT_TRUE(r.exposed->contains("place_order"));
    EXPECT_EQ(r.database_role, "shop_orders");
}

TEST(config_auth, rights_left_out_then_everything_exposed) {
    const auto got = read_key("scopes: [writes]");
    ASSERT_EQ(got.faults, faults_of_paths{});
    EXPECT_FALSE(got.read.api_keys.at(0).rights.exposed);
    EXPECT_TRUE(got.read.api_keys.at(0).rights.database_role.empty());
    EXPECT_TRUE(read_key("scopes: [writes], exposed: []").read.api_keys.at(0).rights.exposed) << "none at all";
}

TEST(config_auth, prefixes_alone_are_enough) {
    for (const char* scopes : {"", "scopes: [], "})
        EXPECT_EQ(read_key(scopes + std::string("prefixes: [{resource_prefix: a, scopes: [leases]}]")).faults,
                  faults_of_paths{});
}

TEST(config_auth, two_keys_of_one_principal_then_both) {
    const auto got =
        read_auth("{api_keys: [{principal: p, key_sha256: " + hash +
                  ", scopes: [leases]}, {principal: p, key_sha256: " + std::string(64, 'c') + ", scopes: [leases]}]}");
    EXPECT_EQ(got.faults, faults_of_paths{});
    EXPECT_EQ(got.read.api_keys.size(), 2U);
}

TEST(config_auth, faulty_rights_are_named_by_their_path) {
    struct row {
        std::string members, fault;
    };
    const std::string key = "auth.api_keys[0]";
    const std::string no_scope = key + ".scopes: must name at least one scope, unless there are prefixes";
    for (const row& each : {
             row{"owner: x", key +
                                 ".owner: unknown key; known here: principal, key_sha256, key_file, scopes, prefixes, "
                                 "exposed, database_role"},
             row{"scopes: []", no_scope},
             row{"prefixes: []", no_scope},
             row{"prefixes: {}", key + ".prefixes: must be a list"},
             row{"prefixes: [{scopes: [leases]}]", key + ".prefixes[0].resource_prefix: is missing"},
             row{"prefixes: [{resource_prefix: a}]", key + ".prefixes[0].scopes: is missing"},
             row{"prefixes: [{resource_prefix: '', scopes: []}]", key + ".prefixes[0].resource_prefix: has no value"},
             row{"prefixes: [{resource_prefix: a b, scopes: []}]",
                 key + ".prefixes[0].resource_prefix: is not the beginning of a resource's name"},
             row{"prefixes: [{resource_prefix: /a, scopes: []}]",
                 key + ".prefixes[0].resource_prefix: is not the beginning of a resource's name"},
             row{"prefixes: [{resource_prefix: a//, scopes: []}]",
                 key + ".prefixes[0].resource_prefix: is not the beginning of a resource's name"},
             row{"prefixes: [{resource_prefix: " + std::string(201, 'a') + ", scopes: []}]",
                 key + ".prefixes[0].resource_prefix: is not the beginning of a resource's name"},
             row{"prefixes: [{resource_prefix: a, scopes: []}, {resource_prefix: a, scopes: [leases]}]",
                 key + ".prefixes[1].resource_prefix: is given more than once"},
             row{"prefixes: [{resource_prefix: a, scopes: [write]}]",
                 key +
                     ".prefixes[0].scopes[0]: \"write\" is none of leases, writes, history, operate, bare_tokens; did "
                     "you mean writes?"},
             row{"prefixes: " + numbered(101, "{resource_prefix: p", ", scopes: []}"),
                 key + ".prefixes: has more than 100 entries"},
             row{"scopes: [leases], exposed: " + numbered(1001, "t", ""), key + ".exposed: has more than 1000 entries"},
             row{"scopes: [leases], exposed: [a, b, a]", key + ".exposed[2]: is named more than once"},
             row{"scopes: [leases], exposed: [" + std::string(129, 'a') + "]",
                 key + ".exposed[0]: must be at most 128 bytes without control characters"},
             row{"scopes: [leases], database_role: " + std::string(64, 'a'),
                 key + ".database_role: must be at most 63 bytes without control characters"},
         }) {
        auto faults = read_key(each.members).faults;
        std::erase_if(faults, [&](const std::string& fault) { return fault == no_scope && each.fault != no_scope; });
        EXPECT_EQ(faults, faults_of_paths{each.fault}) << each.members.substr(0, 100);
    }
}

TEST(config_auth, most_prefixes_and_names_are_accepted) {
    EXPECT_EQ(read_key("prefixes: " + numbered(100, "{resource_prefix: p", ", scopes: []}") +
                       ", exposed: " + numbered(1000, "t", ""))
                  .faults,
              faults_of_paths{});
}

}  // namespace
}  // namespace fencegate
