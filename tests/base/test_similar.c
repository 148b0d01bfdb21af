/* How alike two embeddings are, against values computed by hand. */
#include "base/similar.h"
#include "test.h"

TEST(names)
{
    static const float x[] = {3, 0, 4}, y[] = {0, 2, 1}, zero[3] = {0};
    CHECK_NEAR(similar(NULL, x, y, 3), 4 / (5 * sqrt(5)), 1e-7);
    CHECK_NEAR(similar("cosine", x, x, 3), 1, 1e-7);
    CHECK_NEAR(similar("cosine", x, zero, 3), 0, 0);
    CHECK_NEAR(similar("dot", x, y, 3), 4, 1e-7);
    CHECK_NEAR(similar("euclidean", x, y, 3), -sqrt(9 + 4 + 9), 1e-6);
    CHECK_NEAR(similar("manhattan", x, y, 3), -8, 1e-6);
    CHECK_NEAR(similar("euclidean", x, x, 3), 0, 0);
}

TEST_MAIN(CASE(names))
