//! Chooses how the values of a run are stored: as they are, or as differences from earlier values. The first run of each kind tries
//! every predictor, and later runs try again now and then, as data change. The host tries a sample of a run, the device all of it.

use super::runs::Run;
use hashbrown::HashMap;
use tierflow_codec::Planes;
use tierflow_sync::model::Mutex;

/// Largest number of runs of one kind between two trials. At first, each interval is twice as long as the one before. The host
/// counts each part of a long run.
const ANEW: u64 = 64;

/// The chosen predictors, by the kind and the type of the run.
#[derive(Debug, Default)]
pub(super) struct Predictors(Mutex<HashMap<(usize, u8), Chosen>>);

#[derive(Debug, Clone, Copy)]
struct Chosen {
    planes: Planes,
    uses: u64,
}

impl Predictors {
    /// Returns the predictor for a run. Calls `find` to try all of them.
    pub(super) fn of<E>(
        &self,
        run: &Run,
        find: impl FnOnce() -> Result<Planes, E>,
    ) -> Result<Planes, E> {
        let key = (run.kind, run.value as u8);
        if let Some(found) = self.0.lock().get_mut(&key) {
            found.uses += 1;
            let uses = found.uses;
            if !(uses.is_power_of_two() && uses < ANEW || uses.is_multiple_of(ANEW)) {
                return Ok(found.planes);
            }
        }
        let planes = find()?;
        let mut known = self.0.lock();
        let found = known.entry(key).or_insert(Chosen { planes, uses: 0 });
        found.planes = planes;
        Ok(planes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tierflow_codec::{Element as Value, Predictor};

    #[test]
    fn it_is_found_anew_less_and_less_often() {
        let predictors = Predictors::default();
        let run = Run {
            range: 0..8,
            value: Value::F32,
            bound: None,
            kind: 0,
        };
        let mut tried = Vec::new();
        for n in 0..200 {
            let found = predictors.of(&run, || {
                tried.push(n);
                Ok::<_, ()>(Planes::with(Predictor::Previous))
            });
            assert_eq!(found, Ok(Planes::with(Predictor::Previous)));
        }
        assert_eq!(tried, [0, 1, 2, 4, 8, 16, 32, 64, 128, 192]);
    }
}
