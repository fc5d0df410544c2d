#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "levin/comm/device_mesh.h"
#include "tests/support/error_of.h"

namespace {

using levin::comm::MeshShape;
using levin::test::error_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Ranks = std::vector<int64_t>;

TEST(MeshShape, TheLastAxisVariesFastest) {
  const MeshShape shape{{"a", 2}, {"b", 3}, {"c", 2}};
  EXPECT_EQ(shape.size(), 12);
  EXPECT_EQ(shape.size("b"), 3);
  EXPECT_THAT(shape.coordinates(0), ElementsAre(0, 0, 0));
  EXPECT_THAT(shape.coordinates(7), ElementsAre(1, 0, 1));
  EXPECT_THAT(shape.coordinates(11), ElementsAre(1, 2, 1));
}

TEST(MeshShape, CoordinatesAndRanksAreInverses) {
  for (const MeshShape& shape :
       {MeshShape{}, MeshShape{{"a", 5}}, MeshShape{{"a", 1}, {"b", 4}, {"c", 3}}}) {
    for (int64_t rank = 0; rank < shape.size(); ++rank) {
      EXPECT_EQ(shape.rank(shape.coordinates(rank)), rank) << shape;
    }
  }
}

TEST(MeshShape, RanksAlongAnAxisDifferInItAlone) {
  const MeshShape shape{{"a", 2}, {"b", 3}, {"c", 2}};
  EXPECT_THAT(shape.ranks_along("a", 7), ElementsAre(1, 7));
  EXPECT_THAT(shape.ranks_along("b", 7), ElementsAre(7, 9, 11));
  EXPECT_THAT(shape.ranks_along("c", 7), ElementsAre(6, 7));
}

TEST(MeshShape, PartsHoldEveryRankOnce) {
  const MeshShape shape{{"a", 2}, {"b", 2}, {"c", 2}};
  EXPECT_THAT(shape.parts_along({"a", "c"}), ElementsAre(Ranks{0, 1, 4, 5}, Ranks{2, 3, 6, 7}));
  EXPECT_THAT(shape.parts_along({"b"}),
              ElementsAre(Ranks{0, 2}, Ranks{1, 3}, Ranks{4, 6}, Ranks{5, 7}));
  EXPECT_THAT(shape.parts_along({"a", "b", "c"}), ElementsAre(Ranks{0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(shape.parts_along({}).size(), 8U);
  EXPECT_EQ(shape.along({"a", "c"}), (MeshShape{{"a", 2}, {"c", 2}}));
}

TEST(MeshShape, PrintsItsAxes) {
  std::ostringstream out;
  out << MeshShape{{"replicate", 2}, {"shard", 4}} << "; " << MeshShape{};
  EXPECT_EQ(out.str(), "replicate=2, shard=4; one rank");
}

TEST(MeshShape, MistakesAreErrorsThatSayWhatThereIs) {
  const auto make = [](std::vector<levin::comm::MeshAxis> axes) { MeshShape shape(axes); };
  EXPECT_THAT(error_of([&] { make({{"a", 1}, {"a", 1}}); }),
              HasSubstr("wanted a different name for each axis"));
  EXPECT_THAT(error_of([&] { make({{"a", 0}}); }),
              HasSubstr("comm.mesh: got axes a=0, wanted sizes of at least 1"));
  const MeshShape shape{{"a", 2}, {"b", 2}};
  EXPECT_THAT(error_of([&] { shape.size("c"); }),
              HasSubstr("comm.mesh: got axis 'c', wanted one of a=2, b=2"));
  EXPECT_THAT(error_of([&] { shape.along({"b", "a"}); }),
              HasSubstr("wanted the order of the mesh"));
  EXPECT_THAT(error_of([&] { shape.along({"b", "b"}); }),
              HasSubstr("wanted the order of the mesh"));
  EXPECT_THAT(error_of([&] { shape.coordinates(4); }),
              HasSubstr("comm.mesh: got rank 4 of a=2, b=2, wanted 0 to 3"));
  EXPECT_THAT(error_of([&] { shape.rank(Ranks{1, 2}); }),
              HasSubstr("comm.mesh: got coordinates 1,2"));
  EXPECT_THAT(error_of([&] { shape.rank(Ranks{1}); }), HasSubstr("comm.mesh: got coordinates 1"));
}

}  // namespace
