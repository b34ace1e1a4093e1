package pipeline

import "testing"

// Values computed with Python's hashlib over the documented byte form.
func TestUnitSeedKnownValues(t *testing.T) {
	id := "row-é"
	for _, c := range []struct {
		job    int64
		id     *string
		row    int64
		sample int32
		want   int64
	}{
		{0, nil, 0, 0, 2380920894372760},
		{0, nil, 1, 0, 8088847530369631},
		{7, nil, 1, 0, 8780987919159367},
		{7, nil, 1, 2, 3839174204290523},
		{-3, &id, 5, 0, 3651987424233978},
		{-3, &id, 5, 1, 1630139607164613},
	} {
		if got := UnitSeed(c.job, c.id, c.row, c.sample); got != c.want {
			t.Errorf("UnitSeed(%d, %v, %d, %d) = %d, want %d", c.job, c.id, c.row, c.sample, got, c.want)
		}
	}
}

func TestUnitSeedIgnoresRowWhereThereIsAnID(t *testing.T) {
	id := "a"
	if UnitSeed(1, &id, 3, 0) != UnitSeed(1, &id, 9, 0) {
		t.Error("the row index entered the seed of a row with an id")
	}
	if UnitSeed(1, nil, 3, 0) == UnitSeed(1, nil, 4, 0) {
		t.Error("two rows without ids share a seed")
	}
}
