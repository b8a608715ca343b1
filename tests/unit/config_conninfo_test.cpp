// gateway/config/conninfo: faults of libpq connection strings, which never contain a part of a password.
#include <gateway/config/conninfo.hpp>

#include <gtest/gtest.h>

#include <string>

namespace fencegate {
namespace {

std::string fault_of(const std::string& conninfo) {
    return find_conninfo_fault(conninfo).value_or("none");
}

TEST(conninfo, valid_then_no_fault) {
    for (const char* valid : {"", "host=db dbname=shop", "host=a,b port=1,2 password='my hunter2' connect_timeout=3",
                              "postgresql://u:hunter2@h:5432/d?sslmode=require", "postgresql://u@h", "postgres://h/d@e",
                              "postgresql://u:hun%40ter2@[::1]:5432/d"})
        EXPECT_EQ(fault_of(valid), "none") << valid;
}

TEST(conninfo, unknown_option_is_named) {
    EXPECT_EQ(fault_of("host=db prot=1"), "invalid connection option \"prot\"; did you mean port?");
    EXPECT_EQ(fault_of("passwrd=hunter2"), "invalid connection option \"passwrd\"; did you mean password?");
    EXPECT_EQ(fault_of("password=hunter2 prot=1"), "invalid connection option \"prot\"; did you mean port?");
    EXPECT_EQ(fault_of("host=db colour=red password=hunter2"), "invalid connection option \"***\"");
    EXPECT_EQ(fault_of("postgresql://u:hunter2@h/d?prot=1"),
              "invalid URI query parameter: \"prot\"; did you mean port?");
    EXPECT_EQ(fault_of("postgresql://h:5432/d?colour=red"), "invalid URI query parameter: \"***\"");
    EXPECT_EQ(fault_of("host db"), "missing \"=\" after \"***\" in connection info string");
    EXPECT_EQ(fault_of("host=db port=5x"), "the port is not a number");
}

TEST(conninfo, fault_contains_no_part_of_password) {
    for (const std::string conninfo : {"password=my hunter",
                                       "password=my hunter=2",
                                       "user=hunterx password=my hunter",
                                       "PASSWORD = a hunter",
                                       "sslpassword=a hunter",
                                       "password='a hunter",
                                       "password=a b\"hunter",
                                       "passwrd='x hunter",
                                       "postgresql://u:a/hunter@h/d",
                                       "postgresql://u:hunter/b@h:1/d",
                                       "postgresql://u:a@b:hunter@h/d",
                                       "postgresql://u:hunter%zz@h/d",
                                       "postgresql://u:a%00hunter@h/d",
                                       "postgresql://u:hunter[@[::1/d",
                                       "postgresql://u:hunter/d",
                                       "postgresql://u:1/a?hunter@h/d",
                                       "postgresql://u:1/a?hunter=1@h/d",
                                       "postgresql://u:a@b/c?hunter@h",
                                       "postgresql://u@h/d?password=a&hunter",
                                       "postgresql://u@h/d?password=a&hunter=b",
                                       "postgresql://u@h/d?password=%zhunter",
                                       "postgresql://u:hunter@[/d"}) {
        const std::string fault = fault_of(conninfo);
        EXPECT_NE(fault, "none") << conninfo;
        EXPECT_EQ(fault.find("hunter"), std::string::npos) << conninfo << ": " << fault;
    }
}

TEST(conninfo, relative_file_name_is_named) {
    for (const char* option : {"passfile", "servicefile", "sslcert", "sslkey", "sslcrl", "sslcrldir", "sslrootcert"}) {
        if (fault_of(option + std::string("=/a/b")) != "none") continue;  // an option of a later libpq
        const auto fault = find_relative_file("host=h " + std::string(option) + "=a/b password=hunter2");
        ASSERT_TRUE(fault) << option;
        EXPECT_TRUE(fault->starts_with(std::string(option) + " has to be an absolute file name")) << *fault;
        EXPECT_EQ(find_relative_file(option + std::string("=/a/b")), std::nullopt) << option;
    }
    EXPECT_TRUE(find_relative_file("postgresql://h/d?passfile=.pgpass"));
    EXPECT_EQ(find_relative_file("host=h sslrootcert=system sslkey=pkcs11:id passfile=''"), std::nullopt);
}

TEST(conninfo, uri_with_ambiguous_password_is_recognised) {
    for (const char* ambiguous :
         {"postgresql://u:a@hunter@h/d", "postgresql://u:1/hunter@h/d", "postgresql://u:a?b@hunter@h/d"})
        EXPECT_TRUE(may_misread_password(ambiguous)) << ambiguous;
    for (const char* clear : {"postgresql://u:a@h/d", "postgresql://h/d", "postgresql://u:a@h/d?options=b@c",
                              "postgresql://h/d?user=a@b", "postgresql://h", "host=a@b user=c@d"})
        EXPECT_FALSE(may_misread_password(clear)) << clear;
}

}  // namespace
}  // namespace fencegate
