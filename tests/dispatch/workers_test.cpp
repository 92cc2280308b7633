// Workers that come and go while jobs run, and the account of what each has done.

#include "dispatch/rig.h"

namespace linkcpp::test {
namespace {

class Workers : public DispatcherTest {
  protected:
    /// A job that runs on while the test does something else.
    void begin(const Work& work) {
        status.reset();
        dispatcher->start(work.job, [this](Status s, JobResult r) {
            status = std::move(s);
            result = std::move(r);
        });
    }
    bool until(const std::function<bool()>& happened) { return network.sim().run_until(happened, 60s); }
    void tell(std::vector<size_t> present) {
        std::vector<net::Address> list;
        for (const size_t w : present)
            list.push_back(addresses[w]);
        dispatcher->set_workers(list);
    }
    std::map<std::string, uint64_t> accepted() {
        std::map<std::string, uint64_t> rows;
        for (const auto& entry : dispatcher->take_accepted_rows())
            rows[entry.worker.host] += entry.rows;
        return rows;
    }
    std::string state(size_t w) {
        for (const auto& peer : dispatcher->stats().peers) {
            if (peer.address == addresses[w].str()) return peer.state;
        }
        return "unknown";
    }

    std::optional<Status> status;
};

TEST_F(Workers, OneThatJoinsComputesWhatAJobWaitsFor) {
    settings.no_holder = 50s;
    worker(0, 8);
    worker(8, 16);
    const auto all = addresses;
    addresses = {all[0]};
    make();
    const Work work(20);
    begin(work);
    EXPECT_FALSE(network.sim().run_until([&] { return status.has_value(); }, 20s));
    dispatcher->set_workers(all);
    ASSERT_TRUE(until([&] { return status.has_value(); }));
    ASSERT_TRUE(status->ok()) << status->message();
    work.check(result);
}

TEST_F(Workers, OneThatLeavesAnswersWhatItHasAndGetsNothingNew) {
    worker(0, 16).compute_time = 100ms;
    worker(0, 16).far(50ms);
    const auto all = addresses;
    addresses = {all[0]};
    make();
    const Work work(4);
    begin(work);
    ASSERT_TRUE(until([&] { return workers[0]->requests == 1; }));
    dispatcher->set_workers({all[1]});
    ASSERT_TRUE(until([&] { return status.has_value(); }));
    ASSERT_TRUE(status->ok()) << status->message();
    work.check(result);
    EXPECT_EQ(workers[1]->requests, 0u) << "nothing was asked twice";
    addresses = all;
    ASSERT_TRUE(until([&] { return state(0) == "idle" && state(1) == "ready"; }));
    ASSERT_TRUE(run(work).ok());
    EXPECT_EQ(workers[0]->requests, 1u);
    EXPECT_EQ(workers[1]->requests, 1u);
}

TEST_F(Workers, OneThatLeftMayComeBack) {
    worker(0, 16);
    make();
    ASSERT_TRUE(run(Work(4)).ok());
    dispatcher->set_workers({});
    ASSERT_TRUE(until([&] { return state(0) == "idle"; }));
    EXPECT_FALSE(run(Work(4)).ok());
    tell({0});
    ASSERT_TRUE(until([&] { return state(0) == "ready"; }));
    ASSERT_TRUE(run(Work(4)).ok());
}

TEST_F(Workers, ASwarmThatChangesAllTheTimeLosesNothing) {
    make();
    dispatcher->connect();
    std::map<std::string, uint64_t> sum;
    for (size_t w = 0; w < 50; ++w) {
        worker(0, 16);
        tell({w});
        ASSERT_TRUE(until([&] { return state(w) == "ready"; }));
        const Work work(3);
        ASSERT_TRUE(run(work).ok());
        work.check(result);
        for (const auto& [name, rows] : accepted())
            sum[name] += rows;
        EXPECT_EQ(sum[addresses[w].host], work.job.n_pairs());
    }
    EXPECT_EQ(sum.size(), 50u);
    EXPECT_EQ(dispatcher->stats().peers.size(), 50u);
}

TEST_F(Workers, TheLoserOfTwoIsNotPaid) {
    worker(0, 16).far(1ms);
    worker(0, 16).far(3ms);
    settings.hedge_share = 1;
    make();
    const Work work(2);
    for (int i = 0; i < 25; ++i)
        ASSERT_TRUE(run(work).ok());
    EXPECT_EQ(accepted(), (std::map<std::string, uint64_t>{{"worker0", 25 * work.job.n_pairs()}}));
    EXPECT_TRUE(accepted().empty()) << "told once";
    workers[0]->compute_time = 200ms;
    ASSERT_TRUE(run(work).ok());
    EXPECT_EQ(dispatcher->stats().hedges_won, 1u);
    EXPECT_EQ(accepted(), (std::map<std::string, uint64_t>{{"worker1", work.job.n_pairs()}}));
    network.sim().run_until([] { return false; }, 1s);
    EXPECT_TRUE(accepted().empty()) << "the late answer earns nothing";
}

TEST_F(Workers, WrongNumbersAreNotPaid) {
    worker(0, 16).faults.lie = 1e6f;
    worker(0, 16).far(50ms);
    worker(0, 16).far(60ms);
    settings.audit_share = 1;
    make();
    const Work work(2);
    EXPECT_FALSE(run(work).ok()) << "two disagree, so neither is believed, and the third has nobody to compare with";
    EXPECT_TRUE(accepted().empty());
}

}  // namespace
}  // namespace linkcpp::test
